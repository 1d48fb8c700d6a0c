# Takes marked code out of a page of the documentation, or puts it into a copy of a source file. Writes to OUT.
#   awk -v out=OUT -v program=NAME -f blocks.awk PAGE         the block that ```cpp program=NAME opens
#   awk -v out=OUT -v file=PATH    -f blocks.awk PAGE         the block that ```cpp file=PATH opens
#   awk -v out=OUT -v line=PATH    -f blocks.awk PAGE FILE    FILE with the block that ```cpp line=PATH after=WORD opens,
#                                                             put behind the first line of FILE that holds WORD
# Fails when the page has no such block, or the file no such line.
BEGIN {
  wanted = "line=" line
  if (program != "") wanted = "program=" program
  if (file != "") wanted = "file=" file
  printf "" > out
}
FNR == 1 { page = (++files == 1) }
page && inside && /^```/ { inside = 0; next }
page && inside {
  if (line != "") block = block $0 "\n"
  else print > out
  next
}
page && /^```cpp / && $2 == wanted {
  inside = found = 1
  after = $3
  sub(/^after=/, "", after)
  next
}
page { next }
{ print > out }
found && !put && index($0, after) { printf "%s", block > out; put = 1 }
END {
  if (!found) problem = "the page has no block " wanted
  else if (line != "" && !put) problem = "no line of " line " holds '" after "'"
  if (problem != "") {
    print "blocks: " problem > "/dev/stderr"
    exit 1
  }
}

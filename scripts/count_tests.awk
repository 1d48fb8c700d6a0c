# Counts the outcomes in ctest's output and prints one closing line.
/ Test +#[0-9]+: / {
  if ($0 ~ /\*\*\*Skipped/) skipped++
  else if ($0 ~ /   Passed  /) passed++
  else failed++
}
END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }

#!/usr/bin/env python3
"""Writes the table behind torsor/base/unicode_classes.h: runs of letters, numbers and white space.

    scripts/unicode_classes.py > torsor/base/unicode_classes.inc

The version of Unicode is that of Python's unicodedata, or of the package unicodedata2 where it is installed. The table
in the repository is of Unicode 16.0.0: Python 3.14, or unicodedata2==16.0.0.
"""
try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

# White_Space of PropList.txt: unicodedata does not carry it. The list has not changed since Unicode 6.3.
WHITE_SPACE = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F,
               0x3000}
NAMES = {"L": "letter", "N": "number"}


def class_of(value):
    if value in WHITE_SPACE:
        return "space"
    return NAMES.get(unicodedata.category(chr(value))[0])


def runs():
    first, current = 0, None
    for value in range(0x110000 + 1):
        found = class_of(value) if value < 0x110000 else None
        if found == current:
            continue
        if current is not None:
            yield first, value - 1, current
        first, current = value, found


def main():
    print(f"// Written by scripts/unicode_classes.py from Unicode {unicodedata.unidata_version}; not to be edited.")
    line = ""
    for first, last, name in runs():
        entry = f"{{0x{first:X}, 0x{last:X}, {name}}},"
        if line and len(line) + 1 + len(entry) > 120:
            print(line)
            line = entry
        else:
            line = f"{line} {entry}".strip()
    print(line)


if __name__ == "__main__":
    main()

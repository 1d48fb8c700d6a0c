#!/usr/bin/env python3
"""Writes the tables behind torsor/base/unicode_forms.h: decompositions, compositions, combining classes, lower case, and
the classes of marks, punctuation and controls.

    scripts/unicode_forms.py > torsor/base/unicode_forms.inc

The version of Unicode is that of Python's unicodedata, or of the package unicodedata2 where it is installed. The tables
in the repository are of Unicode 16.0.0: Python 3.14, or unicodedata2==16.0.0. Lower case is str.lower(), whose version
is Python's own; capital letters that an older one does not know are paired by their names.
"""
import unicodedata as own

try:
    import unicodedata2 as unicodedata
except ImportError:
    unicodedata = own

SYLLABLES = range(0xAC00, 0xD7A4)  # Hangul is decomposed by arithmetic
CODE_POINTS = [value for value in range(0x110000) if not 0xD800 <= value < 0xE000]


def runs_of(values):
    """Pairs of the first and last of neighbours in a sorted list."""
    runs = []
    for value in values:
        if runs and runs[-1][1] == value - 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return runs


def table(declaration, entries):
    print(f"constexpr {declaration}[] = {{")
    line = ""
    for entry in entries:
        if line and len(line) + 1 + len(entry) > 120:
            print(line)
            line = entry
        else:
            line = f"{line} {entry}".strip()
    print(line)
    print("};")


def classes(name, wanted):
    found = [value for value in CODE_POINTS if wanted(unicodedata.category(chr(value)))]
    table(f"Range {name}", (f"{{0x{first:X}, 0x{last:X}}}," for first, last in runs_of(found)))


def decompositions():
    for value in CODE_POINTS:
        form = unicodedata.normalize("NFD", chr(value))
        if form != chr(value) and value not in SYLLABLES:
            yield f"{{0x{value:X}, {{{', '.join(f'0x{ord(c):X}' for c in form)}}}}},"


def compositions():
    """Pairs that become one character in NFC: the last character of a decomposition, and what the others become."""
    pairs = []
    for value in CODE_POINTS:
        form = unicodedata.normalize("NFD", chr(value))
        if len(form) < 2 or value in SYLLABLES or unicodedata.normalize("NFC", chr(value)) != chr(value):
            continue
        first = unicodedata.normalize("NFC", form[:-1])
        assert len(first) == 1, hex(value)
        pairs.append((ord(first), ord(form[-1]), value))
    return (f"{{0x{first:X}, 0x{second:X}, 0x{value:X}}}," for first, second, value in sorted(pairs))


def combining():
    first, current = 0, 0
    for value in CODE_POINTS + [0x110000]:
        found = unicodedata.combining(chr(value)) if value < 0x110000 else 0
        if found == current:
            continue
        if current:
            yield f"{{0x{first:X}, 0x{value - 1:X}, {current}}},"
        first, current = value, found


def lower_of(value):
    """The one lower-case letter of a code point, itself where it has none; U+0130, which has two characters, aside."""
    lower = chr(value).lower()
    if own.category(chr(value)) == "Cn" and unicodedata.category(chr(value)) == "Lu":
        try:
            lower = unicodedata.lookup(unicodedata.name(lower).replace(" CAPITAL ", " SMALL "))
        except KeyError:
            pass
    return ord(lower) if len(lower) == 1 else value


def lower_case():
    """Runs with one distance to lower case: neighbours, or every second one."""
    runs = []
    for value in CODE_POINTS:
        lower = lower_of(value)
        if value == lower:
            continue
        if runs:
            first, last, step, distance = runs[-1]
            if lower - value == distance and (value - last == step or (first == last and value - last in (1, 2))):
                runs[-1] = [first, value, value - last, distance]
                continue
        runs.append([value, value, 1, lower - value])
    return (f"{{0x{first:X}, 0x{last:X}, {step}, {distance}}}," for first, last, step, distance in runs)


def main():
    print(f"// Written by scripts/unicode_forms.py from Unicode {unicodedata.unidata_version}; not to be edited.")
    table("Decomposition kDecompositions", decompositions())
    table("Composition kCompositions", compositions())
    table("Combining kCombining", combining())
    table("Lower kLower", lower_case())
    classes("kMarks", lambda category: category == "Mn")
    classes("kPunctuation", lambda category: category[0] == "P")
    classes("kControls", lambda category: category in ("Cc", "Cf", "Co"))


if __name__ == "__main__":
    main()

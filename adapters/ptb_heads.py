"""Constituents to dependencies: bracketed trees in the style of the Penn Treebank, and a head table in the style of
Collins (1999, appendix A). The heads are function heads ("of" heads "of the house"), not those of Universal
Dependencies, and every label is `dep`: good for shapes (hexatags), and to be gated against the same conversion only."""

# Label: (direction, priority). "left" scans the children from the left, "right" from the right.
RULES = {
    "ADJP": ("left", "NNS QP NN $ ADVP JJ VBN VBG ADJP JJR NP JJS DT RB"),
    "ADVP": ("right", "RB RBR RBS ADVP TO CD JJ IN NP"),
    "CONJP": ("right", "CC RB IN"),
    "NAC": ("left", "NN NNS NNP NNPS NP"),
    "PP": ("right", "IN TO VBG VBN RP"),
    "PRT": ("right", "RP"),
    "QP": ("left", "$ IN NNS NN JJ RB DT CD"),
    "S": ("left", "TO IN VP S SBAR ADJP UCP NP"),
    "SBAR": ("left", "WHNP WHPP WHADVP WHADJP IN DT S SQ SINV"),
    "SBARQ": ("left", "SQ S SINV"),
    "SINV": ("left", "VBZ VBD VBP VB MD VP S"),
    "SQ": ("left", "VBZ VBD VBP VB MD VP"),
    "VP": ("left", "TO VBD VBN MD VBZ VB VBG VBP VP ADJP NN NNS NP"),
    "WHADVP": ("right", "CC WRB"),
    "WHNP": ("left", "WDT WP WP$ WHADJP WHPP WHNP"),
    "WHPP": ("right", "IN TO FW"),
}


class Node:
    """A constituent, or with `word` a leaf under its tag."""

    def __init__(self, label, children=(), word=None):
        self.label, self.children, self.word = label, list(children), word


def read_tree(text):
    """A tree from its brackets. Raises ValueError for what is none."""
    tokens = text.replace("(", " ( ").replace(")", " ) ").split()
    at = 0

    def node():
        nonlocal at
        if at >= len(tokens) or tokens[at] != "(":
            raise ValueError("expected ( in " + text)
        at += 1
        label = ""
        if at < len(tokens) and tokens[at] not in "()":
            label = tokens[at]
            at += 1
        children, word = [], None
        while at < len(tokens) and tokens[at] != ")":
            if tokens[at] == "(":
                children.append(node())
            else:
                word = tokens[at]
                at += 1
        if at >= len(tokens):
            raise ValueError("expected ) in " + text)
        at += 1
        return Node(label, children, word)

    root = node()
    if at != len(tokens):
        raise ValueError("expected the end in " + text)
    return root


def plain_label(label):
    """Without functions and indices: NP of NP-SBJ-1 and NP=2; labels that begin with a dash (-LRB-) stay."""
    if label.startswith("-"):
        return label
    return label.split("-")[0].split("=")[0] or label


def strip_traces(node):
    """The tree without empty elements (-NONE-) and what they leave empty; None when nothing is left."""
    if node.word is not None:
        return None if node.label == "-NONE-" else Node(plain_label(node.label), word=node.word)
    children = [child for child in map(strip_traces, node.children) if child is not None]
    return Node(plain_label(node.label), children) if children else None


def noun_phrase_head(children):
    """Collins's rules for NP: the place of the head child."""
    labels = [child.label for child in children]
    if labels[-1] == "POS":
        return len(labels) - 1

    def rightmost(wanted):
        return next((at for at in reversed(range(len(labels))) if labels[at] in wanted), None)

    leftmost_phrase = next((at for at, label in enumerate(labels) if label == "NP"), None)
    for found in (rightmost({"NN", "NNP", "NNPS", "NNS", "NX", "POS", "JJR"}), leftmost_phrase,
                  rightmost({"$", "ADJP", "PRN"}), rightmost({"CD"}), rightmost({"JJ", "JJS", "RB", "QP"})):
        if found is not None:
            return found
    return len(labels) - 1


def head_child(node):
    """The place of the child that holds the head."""
    if node.label in ("NP", "NX"):
        return noun_phrase_head(node.children)
    direction, priority = RULES.get(node.label, ("left", ""))
    places = list(range(len(node.children)))
    if direction == "right":
        places.reverse()
    for label in priority.split():
        for at in places:
            if node.children[at].label == label:
                return at
    return places[0]


def dependencies(tree):
    """(words, tags, heads) of a tree without traces; heads from 1, 0 for the root."""
    words, tags, heads = [], [], []

    def visit(node):
        if node.word is not None:
            words.append(node.word)
            tags.append(node.label)
            heads.append(0)
            return len(words)
        lexical = [visit(child) for child in node.children]
        head = lexical[head_child(node)]
        for word in lexical:
            if word != head:
                heads[word - 1] = head
        return head

    visit(tree)
    return words, tags, heads

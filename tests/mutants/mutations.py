"""Mutants: small changes of meaning in the rule code, made on its syntax tree, drawn by seed."""

import ast
import difflib
import hashlib
from collections import Counter
from pathlib import Path

import msgspec

from tests.conftest import ROOT

RULES = (
    "profkit/timeline/**/*.py",
    "profkit/analyzers/**/*.py",
    "profkit/findings/**/*.py",
    "profkit/verdict.py",
    "profkit/verdict/**/*.py",
    *(f"profkit/ranks/{room}/**/*.py" for room in ("reduce", "align", "measure", "findings")),
    *(f"profkit/compare/{room}/**/*.py" for room in ("stats", "captures", "scaling")),
    "profkit/kernels/**/*.py",
)
_SWAPPED_OPERATORS = (
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
    (ast.BitAnd, ast.BitOr),
    (ast.And, ast.Or),
)
_OPERATORS = {
    **{one: other for pair in _SWAPPED_OPERATORS for one, other in (pair, pair[::-1])},
    ast.FloorDiv: ast.Mult,
}
_CALLED = {one: other for pair in (("min", "max"), ("any", "all")) for one, other in (pair, pair[::-1])}
_CALLED |= {"argmin": "argmax", "argmax": "argmin"}
_UFUNCS = {"minimum": "maximum", "maximum": "minimum"}
_LARGE = 10
"""Numbers from here on are scaled rather than counted up."""


class Mutant(msgspec.Struct, frozen=True):
    """One change: the bytes `start:end` of a file become `after`."""

    id: str
    path: str
    scope: str
    """The function around it, as `Class.method`; empty at the module's level."""
    line: int
    kind: str
    before: str
    after: str
    start: int
    end: int

    def source(self) -> str:
        """The file's text with the change."""
        text = (ROOT / self.path).read_bytes()
        assert text[self.start : self.end] == self.before.encode(), f"{self.path} changed meanwhile: draw again"
        return (text[: self.start] + self.after.encode() + text[self.end :]).decode()

    def diff(self) -> str:
        """The change as a unified diff without context."""
        lines = (ROOT / self.path).read_text("utf-8").splitlines()
        changed = difflib.unified_diff(lines, self.source().splitlines(), lineterm="", n=0)
        return "\n".join(line for line in changed if not line.startswith(("---", "+++")))


def draw(seed: str, count: int) -> list[Mutant]:
    """The first `count` mutants in the order that the seed gives, which no change of another line alters."""
    found = [mutant for path in rule_files() for mutant in mutants_of(path, seed)]
    return sorted(found, key=lambda mutant: mutant.id)[:count]


def rule_files() -> list[str]:
    """The files of the rule code, relative to the repository."""
    return sorted({path.relative_to(ROOT).as_posix() for pattern in RULES for path in ROOT.glob(pattern)})


def mutants_of(path: str, seed: str = "") -> list[Mutant]:
    """All mutants of one file."""
    text = (ROOT / path).read_bytes()
    lines = text.splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    seen: Counter[str] = Counter()
    found = []
    for scope, node, kind, after in _Sites(ast.parse(text)).found:
        start = offsets[node.lineno - 1] + node.col_offset
        end = offsets[node.end_lineno - 1] + node.end_col_offset
        before = text[start:end].decode()
        said = f"{scope}|{lines[node.lineno - 1].decode().strip()}|{kind}|{before}|{after}"
        seen[said] += 1
        key = hashlib.sha256(f"{seed}|{said}|{seen[said]}".encode()).hexdigest()[:16]
        found.append(Mutant(key, path, scope, node.lineno, kind, before, after, start, end))
    return found


class _Sites(ast.NodeVisitor):
    """Where a tree can be changed, as (scope, node, kind, text of the node afterwards)."""

    def __init__(self, tree: ast.Module) -> None:
        self.found: list[tuple[str, ast.AST, str, str]] = []
        self._scope: list[str] = []
        self.visit(tree)

    def _site(self, node: ast.AST, kind: str, after: ast.AST | str) -> None:
        if isinstance(after, ast.expr):
            after = f"({ast.unparse(after)})"
        elif isinstance(after, ast.AST):
            after = ast.unparse(after)
        self.found.append((".".join(self._scope), node, kind, after))

    def _operators(self, node: ast.AST, field: str) -> None:
        operators = getattr(node, field)
        if not isinstance(operators, list):
            if other := _OPERATORS.get(type(operators)):
                self._site(node, type(operators).__name__, _with(node, field, other()))
            return
        for place, operator in enumerate(operators):
            if other := _OPERATORS.get(type(operator)):
                new = [*operators[:place], other(), *operators[place + 1 :]]
                self._site(node, type(operator).__name__, _with(node, field, new))

    # ------------------------------------------------------------------------------------------------- never changed

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...
    def visit_Raise(self, node: ast.Raise) -> None: ...
    def visit_Assert(self, node: ast.Assert) -> None: ...

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._scope.append(node.name)
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._scope.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._scope.pop()

    # --------------------------------------------------------------------------------------------------------- sites

    def visit_Compare(self, node: ast.Compare) -> None:
        self._operators(node, "ops")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._operators(node, "op")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not any(_is_text(side) for side in (node.left, node.right)):
            self._operators(node, "op")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if not _is_text(node.value):
            self._operators(node, "op")
        self.visit(node.value)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, (ast.Not, ast.Invert)) or not isinstance(node.operand, ast.Constant):
            self._site(node, type(node.op).__name__, node.operand)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" not in ast.unparse(node.test):
            self._site(node.test, "If", "False")
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if type(value) is float:
            self._site(node, "Constant", repr(round(value * 1.3, 9)) if value else "1.0")
        elif type(value) is int:
            self._site(node, "Constant", repr(value + 1 if value < _LARGE else value * 13 // 10))

    def visit_Slice(self, node: ast.Slice) -> None:
        if node.lower is not None or node.upper is not None:
            self._site(node, "Slice", ast.unparse(ast.Slice(lower=node.upper, upper=node.lower, step=node.step)))
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in _UFUNCS:
            self._site(node, "Call", ast.Attribute(value=node.value, attr=_UFUNCS[node.attr], ctx=node.ctx))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Name) and function.id in _CALLED:
            self._site(function, "Call", ast.Name(id=_CALLED[function.id], ctx=function.ctx))
        if isinstance(function, ast.Attribute) and function.attr in _CALLED:
            self._site(
                function, "Call", ast.Attribute(value=function.value, attr=_CALLED[function.attr], ctx=function.ctx)
            )
        if isinstance(function, ast.Name) and function.id == "Evidence":  # but for its number it is text
            for keyword in node.keywords:
                if keyword.arg == "value":
                    self.visit(keyword)
        elif not (isinstance(function, ast.Name) and function.id.startswith("format_")):  # these make text
            self.generic_visit(node)


def _with(node: ast.AST, field: str, value: object) -> ast.AST:
    return type(node)(**{**dict(ast.iter_fields(node)), field: value})


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def module_of(path: str) -> str:
    """The dotted name of a module's file."""
    return ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")

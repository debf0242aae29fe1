"""Draws the mutants: small changes to functions whose shape is the same in three commits.

Two functions have one shape when their syntax trees are equal up to a consistent renaming of identifiers; names of
Python's own, literals and operators must be equal, docstrings may differ. The mutants of two functions of one shape
correspond to each other, one to one, so that a change in one commit can be repeated in the other.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import hashlib
import io
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper
from mutmut.mutation.file_mutation import Mutation, MutationVisitor, deep_replace
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode

AREAS = (
    "ledger/core",
    "bot/rules/approvals",
    "bot/rules/billing",
    "bot/rules/instances",
    "bot/services/instances",
)
PACKAGES = ("bot", "ledger", "providers")
#: Python's own names, which a change of name does not touch.
OWN = frozenset(dir(builtins)) | {"self", "cls"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Change:
    """A function's new source: of a method, inside a class that has nothing else."""

    path: str
    name: str
    source: str

    @property
    def place(self) -> str:
        """Where the function is."""
        return f"{self.path}::{self.name}"

    def order(self) -> dict[str, str]:
        """What a worker reads."""
        return {**asdict(self), "module": self.path.removesuffix(".py").replace("/", ".")}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change, in the old commit and in the new one. `number` counts the mutants of its function."""

    area: str
    number: int
    old: Change
    new: Change
    diff: str

    @property
    def name(self) -> str:
        """For people, and as a key."""
        return f"{self.new.place}#{self.number}"


def tree_of(root: Path, commit: str) -> dict[str, str]:
    """The program's sources at a commit, by path."""
    command = ["git", "archive", "--format=tar", commit, *PACKAGES]
    packed = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout
    found = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            if member.name.endswith(".py") and (file := archive.extractfile(member)) is not None:
                found[member.name] = file.read().decode()
    return found


def functions(source: str) -> Iterator[tuple[str, Function]]:
    """The functions of a module and the methods of its classes, by name; of two with one name, the last."""
    found: dict[str, Function] = {}
    for node in ast.parse(source).body:
        if isinstance(node, Function):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}": inner for inner in node.body if isinstance(inner, Function)}
    yield from found.items()


def plainly_called(function: Function) -> bool:
    """Whether a name leads to the function itself, not to what a decorator made of it."""
    names = [ast.unparse(decorator) for decorator in function.decorator_list]
    return names in ([], ["staticmethod"], ["classmethod"])


def shape(function: Function) -> str:
    """A text that two functions share when they differ only in names and docstrings."""
    names: dict[str, str] = {}

    def seen(value: object) -> str:
        if isinstance(value, ast.Constant):
            return repr(value.value)
        if isinstance(value, ast.AST):
            fields = dict(ast.iter_fields(value))
            body = fields.get("body")
            if isinstance(value, Function | ast.ClassDef) and body and ast.get_docstring(value) is not None:
                fields["body"] = body[1:]
            return f"{type(value).__name__}({', '.join(map(seen, fields.values()))})"
        if isinstance(value, list):
            return f"[{', '.join(map(seen, value))}]"
        if isinstance(value, str):
            return value if value in OWN else names.setdefault(value, f"name{len(names)}")
        return repr(value)

    return seen(function)


class Shapes:
    """Finds the function of a commit that has the shape of a given one."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._at: dict[tuple[str, str], str] = {}
        self._with: dict[str, list[tuple[str, str]]] = {}
        for path, source in sources.items():
            for name, function in functions(source):
                self._at[path, name] = form = shape(function)
                self._with.setdefault(form, []).append((path, name))

    def find(self, path: str, name: str, form: str) -> tuple[str, str] | None:
        """The same place, else the only function of that name, else the only one; None if there are none or several."""
        if self._at.get((path, name)) == form:
            return path, name
        every = self._with.get(form, [])
        for some in ([at for at in every if at[1] == name], every):
            if len(some) == 1:
                return some[0]
        return None


class Mutations:
    """What mutmut would change in a tree's functions, in its order. Sources are made for what is drawn only."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._files: dict[str, dict[str, list[Mutation]]] = {}

    def of(self, path: str, name: str) -> list[Mutation]:
        """The mutations of one function."""
        if path not in self._files:
            self._files[path] = self._read(self._sources[path])
        return self._files[path].get(name, [])

    def change(self, path: str, name: str, number: int) -> Change:
        """The function with one of its mutations."""
        mutation = self.of(path, name)[number]
        assert mutation.contained_by_top_level_function is not None
        function = mutation.contained_by_top_level_function
        made = deep_replace(function, mutation.original_node, mutation.mutated_node)
        assert isinstance(made, cst.FunctionDef)
        owner, _, _ = name.rpartition(".")
        outer = cst.ClassDef(cst.Name(owner), cst.IndentedBlock([made])) if owner else made
        return Change(path, name, cst.Module([outer]).code.lstrip("\n"))

    @staticmethod
    def _read(source: str) -> dict[str, list[Mutation]]:
        visitor = MutationVisitor(mutation_operators, IgnoredCode(set(), set(), set()))
        module = MetadataWrapper(cst.parse_module(source)).visit(visitor)
        names: dict[int, str] = {}
        for node in module.body:
            if isinstance(node, cst.FunctionDef):
                names[id(node)] = node.name.value
            elif isinstance(node, cst.ClassDef):
                inside = [inner for inner in node.body.body if isinstance(inner, cst.FunctionDef)]
                names |= {id(inner): f"{node.name.value}.{inner.name.value}" for inner in inside}
        found: dict[str, list[Mutation]] = {}
        for mutation in visitor.mutations:
            if (name := names.get(id(mutation.contained_by_top_level_function))) is not None:
                found.setdefault(name, []).append(mutation)
        return found


def original(path: str, name: str, source: str) -> Change:
    """A function as it is, in the form of a change."""
    owner, _, _ = name.rpartition(".")
    code = ast.unparse(dict(functions(source))[name])
    return Change(path, name, f"class {owner}:\n    " + code.replace("\n", "\n    ") if owner else code)


def _tree(source: str) -> str | None:
    """The syntax tree, or None where the source is not Python: an operator may make such a mutant."""
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return None
    return ast.dump(ast.parse(source))


def _diff(plain: str, changed: str) -> str:
    lines = difflib.unified_diff(plain.splitlines(), ast.unparse(ast.parse(changed)).splitlines(), n=0, lineterm="")
    return " ".join(" ".join(line.split()) for line in [*lines][2:] if not line.startswith("@@"))


class Draw:
    """Mutants of the functions whose shape is the same in a base, an old and a new commit."""

    def __init__(self, base: Mapping[str, str], old: Mapping[str, str], new: Mapping[str, str]) -> None:
        self._base, self._before = Shapes(base), Shapes(old)
        self._new, self._old_mutations, self._new_mutations = new, Mutations(old), Mutations(new)

    def pool(self, area: str) -> list[tuple[str, str, str, str, int]]:
        """Path and name in the old commit and in the new one, and the mutant's number in its function."""
        found = []
        for path in sorted(one for one in self._new if one.startswith(f"{area}/")):
            for name, function in functions(self._new[path]):
                form = shape(function)
                there = self._before.find(path, name, form)
                if there is None or self._base.find(*there, form) is None:
                    continue
                count = len(self._new_mutations.of(path, name))
                if count == len(self._old_mutations.of(*there)):
                    found += [(*there, path, name, number) for number in range(count)]
        return found

    def draw(self, area: str, each: int, seed: int) -> tuple[int, list[Mutant]]:
        """How many mutants an area has, and as many as wanted of them.

        Each has its place in the draw by the old commit's names alone, so that a newer commit draws nearly the same.
        """

        def place(entry: tuple[str, str, str, str, int]) -> str:
            return hashlib.sha256(f"{seed} {entry[0]}::{entry[1]}#{entry[4]}".encode()).hexdigest()

        drawn: list[Mutant] = []
        pool = sorted(self.pool(area), key=place)
        for old_path, old_name, path, name, number in pool:
            if len(drawn) == each:
                break
            plain = original(path, name, self._new[path]).source
            old = self._old_mutations.change(old_path, old_name, number)
            new = self._new_mutations.change(path, name, number)
            if _tree(old.source) and _tree(new.source) not in (None, _tree(plain)):
                drawn.append(Mutant(area, number, old, new, _diff(plain, new.source)))
        return len(pool), drawn

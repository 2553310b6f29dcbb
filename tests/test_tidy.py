"""What the sources must look like: layers, who may change files, who may print, what is named how."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka import jars
from tests.sources import tree_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
PACKAGES = ("eoctl", "recovery", "storage")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in MODULES]
MAN_PAGES = sorted((ROOT / "man").glob("*.[1-9]"))
LINES_MAX = 900
# A module below this belongs into its caller, unless it is what a small call loads alone, or one
# file kind. There are so many of them, and no more.
LINES_MIN = 150
SMALL_MODULES_MAX = 60
# Value classes that are built in one place, and named in no other module.
OWN_VALUES_MAX = 165
FUNCTION_LINES_MAX = 80
# Longer than that, and why; the function of a command has all its options besides.
LONG_FUNCTIONS = {
    "recover_state": "the steps of a broker's recovery, in its order",
    "describe_partition": "one pass that fills one row",
}

# Package -> what it must not import. Imports go eoctl -> recovery -> storage; Spark is optional.
FORBIDDEN_IMPORTS = {
    "storage": {"eoctl", "recovery", "typer", "click", "rich", "pyspark", "pyarrow", "logging"},
    "recovery": {"eoctl", "typer", "click", "rich", "pyspark", "pyarrow", "logging"},
    "eoctl": {"click", "logging"},
}
# Module -> what it may import nevertheless: Arrow is what records are handed on in.
MAY_IMPORT = {
    "recovery/export/piece.py": {"pyarrow"},
    "recovery/records/columns.py": {"pyarrow"},
}
# storage/formats is pure: bytes in, value out.
IMPURE_IMPORTS = {
    "datetime", "mmap", "multiprocessing", "os", "pathlib", "random", "shutil", "socket",
    "subprocess", "tempfile", "threading", "time",
}  # fmt: skip

# Functions that change files. storage/files/fsio.py is the only module that may call them.
CHANGING_OS_CALLS = {
    "chmod", "chown", "copy_file_range", "fchmod", "fchown", "fdatasync", "fdopen", "fsync",
    "ftruncate", "lchown", "link", "makedirs", "mkdir", "mkfifo", "mknod", "posix_fallocate",
    "pwrite", "pwritev", "remove", "removedirs", "rename", "renames", "replace", "rmdir", "sendfile",
    "symlink", "truncate", "unlink", "utime", "write", "writev",
}  # fmt: skip
CHANGING_METHODS = {
    "chmod", "hardlink_to", "mkdir", "rename", "rmdir", "symlink_to", "touch", "truncate", "unlink",
    "write_bytes", "write_text", "writelines",
}  # fmt: skip
CHANGING_MODULES = {"shutil", "tempfile", "fileinput"}
WRITING_OPEN_FLAGS = {"O_APPEND", "O_CREAT", "O_RDWR", "O_TRUNC", "O_WRONLY"}
# The second is a file system as the first, which forgets what was not synced.
MAY_CHANGE_FILES = {"storage/files/fsio.py", "eoctl/lab/nodes/power_loss.py"}
# Module -> what it may do nevertheless, since no file changes by it.
EXCEPTIONS = {
    # What is played, and then judged.
    "eoctl/lab/guarantees/scenarios.py": {"tempfile.TemporaryDirectory", "tempfile.gettempdir"},
    "eoctl/output.py": {"O_WRONLY", "os.fdopen"},  # opens the null device
    # Partitions as they were before a change, for the reader of groups.
    "eoctl/commands/diff.py": {
        "tempfile.TemporaryDirectory",
        ".mkdir",
        ".open for writing",
    },
    "eoctl/help/command.py": {".write_text"},  # of what formats the help
    # Schemas, for the compiler of Protobuf.
    "eoctl/clients/record_formats/schemas.py": {
        "tempfile.TemporaryDirectory",
        ".mkdir",
        ".write_text",
    },
    # A file without a name, and the directory that it is in.
    "recovery/duplicates/spill.py": {"tempfile.TemporaryFile", "tempfile.gettempdir"},
    "recovery/summaries/codec.py": {"tempfile.TemporaryFile", "tempfile.gettempdir"},
    "eoctl/spark/executors.py": {"tempfile.TemporaryDirectory"},  # for what is sent
    # Links to Spark's files, in the user's cache.
    "eoctl/spark/session.py": {
        "tempfile.mkdtemp",
        "shutil.rmtree",
        ".mkdir",
        ".rename",
        ".symlink_to",
    },
}
MAY_PRINT = {"eoctl/output.py"}

# Rows with more fields than that are built by name.
POSITIONAL_MAX = 3
# (module, row) -> why it is built by place. By name, 13 fields take more than twice the time.
BY_PLACE = {
    ("eoctl/clients/record_formats/record_text.py", "_Line"): "one a record",
    ("eoctl/clients/copying/copied_batch.py", "BatchHeader"): "one a batch",
    ("eoctl/lab/checker/histories.py", "Operation"): "one a line of a history",
    ("eoctl/lab/checker/operations.py", "OpenSend"): "one a line of a history",
    ("eoctl/clients/record_formats/inputs.py", "InputRecord"): "one a line of the input",
    ("eoctl/lab/nodes/broker.py", "FetchAnswer"): "one a fetch",
    ("eoctl/lab/nodes/broker.py", "ProduceAnswer"): "one a batch",
    ("eoctl/lab/nodes/power_loss.py", "_Change"): "one a write",
    ("storage/writing/batch_run.py", "BatchHeader"): "one a batch",
    ("storage/formats/legacy_message.py", "LegacyRecord"): "one a record",
    ("storage/formats/legacy_message.py", "Message"): "one a message",
    ("storage/formats/record.py", "Record"): "one a record",
    ("storage/producers/producer_state.py", "CachedBatch"): "one a batch",
    ("storage/writing/record_builder.py", "BatchHeader"): "one a batch",
    ("storage/writing/record_builder.py", "Record"): "one a record",
    ("storage/log/segment.py", "LogRecord"): "one a record",
    ("storage/writing/writer.py", "BatchHeader"): "one a batch",
}
# Module -> why it takes some of the fields of a row by their places.
MAY_SLICE = {
    "storage/formats/record_batch.py": "the bytes of a header, one a batch",
    "storage/writing/writer.py": "one header a batch",
}

# Modules of storage/formats that are no file kind of their own -> the page that tells of them.
NO_PAGE_OF_ITS_OWN: dict[str, str] = {
    "coordinator_record": "message",
    "index_entries": "offset-index",
    "java_text": "checkpoint",
    "varint": "record",
}


@cache
def _tree(name: str) -> ast.Module:
    return tree_of(ROOT / name)


@cache
def _by_class(tree: ast.Module) -> dict[type[ast.AST], list[Any]]:
    found: dict[type[ast.AST], list[Any]] = {}
    for node in ast.walk(tree):
        found.setdefault(type(node), []).append(node)
    return found


def _nodes(tree: ast.Module, *classes: type[ast.AST]) -> Iterator[Any]:
    """Give the nodes of a module that are of these classes."""
    return chain.from_iterable(_by_class(tree).get(each, ()) for each in classes)


def _imports(name: str) -> list[tuple[int, str]]:
    """(line, dotted module) of every import, also of those inside of functions."""
    found = []
    for node in _nodes(_tree(name), ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        else:
            base = node.module or ""
            if node.level:
                package = Path(name).parts[: -node.level]
                base = ".".join([*package, *([base] if base else [])])
            found.append((node.lineno, base))
    return found


def _opens_for_writing(call: ast.Call, *, mode_index: int) -> bool:
    """Whether a call of open() has a mode that writes, or one that cannot be seen to only read."""
    modes = [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
    modes += call.args[mode_index : mode_index + 1]
    return any(
        not isinstance(mode, ast.Constant) or bool(set(str(mode.value)) & set("wax+"))
        for mode in modes
    )


def _changing_calls(tree: ast.Module) -> list[tuple[int, str]]:
    """(line, what) of everything in a module that may change a file."""
    found = []
    for node in _nodes(tree, ast.ImportFrom, ast.Attribute, ast.Call):
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            names = {alias.name for alias in node.names}
            found += [(node.lineno, f"os.{name}") for name in names & CHANGING_OS_CALLS]
        elif isinstance(node, ast.Attribute) and node.attr in WRITING_OPEN_FLAGS:
            found.append((node.lineno, node.attr))
        elif isinstance(node, ast.Call):
            found += [(node.lineno, what) for what in _changes_of_call(node)]
    return found


def _changes_of_call(call: ast.Call) -> list[str]:
    function = call.func
    if isinstance(function, ast.Name):
        is_open = function.id == "open" and _opens_for_writing(call, mode_index=1)
        return ["open for writing"] if is_open else []
    if not isinstance(function, ast.Attribute):
        return []
    owner = function.value.id if isinstance(function.value, ast.Name) else ""
    name = function.attr
    if owner == "fs" or getattr(function.value, "attr", "") in {"fs", "_fs"}:
        return []  # storage.files.fsio.FileSystem itself
    if owner == "os":
        return [f"os.{name}"] if name in CHANGING_OS_CALLS else []
    if owner in CHANGING_MODULES:
        return [f"{owner}.{name}"]
    if name == "open" and _opens_for_writing(call, mode_index=1 if owner in {"io", "gzip"} else 0):
        return [".open for writing"]
    # str.replace and bytes.replace take two arguments, Path.replace one.
    is_path_replace = name == "replace" and len(call.args) == 1 and not call.keywords
    return [f".{name}"] if name in CHANGING_METHODS or is_path_replace else []


# --- the rules ------------------------------------------------------------------------------------


def _forbidden_imports(name: str) -> set[str]:
    forbidden = FORBIDDEN_IMPORTS[Path(name).parts[0]]
    if name.startswith("storage/formats/"):
        forbidden = forbidden | IMPURE_IMPORTS
    if name.startswith("eoctl/") and not name.startswith("eoctl/spark/"):
        forbidden = forbidden | {"pyspark"}
    return forbidden - MAY_IMPORT.get(name, set())


def test_imports_go_in_one_direction() -> None:
    assert [
        f"{name}:{line} imports {module}"
        for name in NAMES
        for line, module in _imports(name)
        if module.split(".")[0] in _forbidden_imports(name)
    ] == []


def _named_calls(name: str) -> list[tuple[int, str]]:
    """(line, function) of every call of a function by its bare name."""
    functions = [node.func for node in _nodes(_tree(name), ast.Call)]
    return [(each.lineno, each.id) for each in functions if isinstance(each, ast.Name)]


def test_formats_open_no_files() -> None:
    formats = [name for name in NAMES if name.startswith("storage/formats/")]
    assert len(formats) > 10
    assert [
        f"{name}:{line} {function}"
        for name in formats
        for line, function in _named_calls(name)
        if function in {"open", "input"}
    ] == []


def test_only_fsio_changes_files() -> None:
    assert [
        f"{name}:{line} {what}"
        for name in NAMES
        if name not in MAY_CHANGE_FILES
        for line, what in _changing_calls(_tree(name))
        if what not in EXCEPTIONS.get(name, set())
    ] == []


@pytest.mark.parametrize(
    "source",
    [
        "os.rename(a, b)", "from os import replace", "open(p, 'w')", "open(p, mode='r+b')",
        "open(p, mode)", "p.open('ab')", "io.open(p, 'x')", "p.write_text('')", "p.replace(q)",
        "shutil.copy(a, b)", "os.open(p, os.O_RDWR)", "p.unlink()", "f.truncate(0)",
    ],
)  # fmt: skip
def test_the_rule_sees_changing_calls(source: str) -> None:
    assert _changing_calls(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "open(p)", "open(p, 'rb')", "p.open()", "p.open('rb', buffering=0)", "s.replace(a, b)",
        "os.open(p, os.O_RDONLY)", "os.pread(f, 1, 0)", "out.write(b'')", "p.read_text()",
        "header.replace(crc=1)",
    ],
)  # fmt: skip
def test_the_rule_lets_reading_calls_pass(source: str) -> None:
    assert _changing_calls(ast.parse(source)) == []


def _is_row(node: ast.ClassDef) -> bool:
    """Whether a class is a named tuple or a dataclass."""
    decorators = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    names = [ast.unparse(each).split(".")[-1] for each in (*node.bases, *decorators)]
    return "NamedTuple" in names or "dataclass" in names


@cache
def _row_types() -> dict[tuple[str, str], list[str]]:
    """Fields of each row type, by module and name."""
    return {
        (_module_of(name), node.name): [
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        ]
        for name in NAMES
        for node in _nodes(_tree(name), ast.ClassDef)
        if _is_row(node)
    }


def _module_of(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _wide_rows(module: str, tree: ast.Module) -> set[str]:
    """Names that stand for row types with more than three fields in a module."""
    found = {}
    for node in _nodes(tree, ast.ImportFrom, ast.ClassDef):
        if isinstance(node, ast.ImportFrom):
            found |= {
                each.asname or each.name: (node.module or "", each.name) for each in node.names
            }
        else:
            found[node.name] = (module, node.name)
    fields = _row_types()
    return {name for name, place in found.items() if len(fields.get(place, ())) > POSITIONAL_MAX}


def _rows_by_place(module: str, tree: ast.Module) -> list[tuple[int, str]]:
    """(line, type) of every wide row that is built by the places of its fields."""
    wide = _wide_rows(module, tree)
    return [
        (node.lineno, node.func.id)
        for node in _nodes(tree, ast.Call)
        if isinstance(node.func, ast.Name)
        and node.func.id in wide
        and (len(node.args) > POSITIONAL_MAX or any(isinstance(e, ast.Starred) for e in node.args))
    ]


def test_wide_rows_are_built_by_name() -> None:
    """A field that is put between two others would shift what follows, in silence."""
    found = {
        (name, row): line
        for name in NAMES
        for line, row in _rows_by_place(_module_of(name), _tree(name))
    }
    assert [
        f"{name}:{found[name, row]} {row}" for name, row in found.keys() - BY_PLACE.keys()
    ] == []
    assert BY_PLACE.keys() - found.keys() == set(), "no exception that is not needed"


def _slices_of_rows(module: str, tree: ast.Module) -> list[int]:
    """Lines where a wide row is sliced: `self` in one, or a parameter that is annotated as one."""
    wide, found = _wide_rows(module, tree), []
    for node in _nodes(tree, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef):
        names: set[str] = set()
        if isinstance(node, ast.ClassDef):
            if node.name in wide and "NamedTuple" in ast.dump(node):
                names = {"self"}
        elif wide:
            arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            said = {
                each.arg: ast.unparse(each.annotation or ast.Constant("")) for each in arguments
            }
            names = {arg for arg, kind in said.items() if wide & {*re.findall(r"^\w+", kind)}}
        if not names:
            continue
        found += [
            each.lineno
            for each in ast.walk(node)
            if isinstance(each, ast.Subscript)
            and isinstance(each.slice, ast.Slice)
            and isinstance(each.value, ast.Name)
            and each.value.id in names
        ]
    return found


def test_wide_rows_are_not_sliced() -> None:
    assert [
        f"{name}:{line}"
        for name in NAMES
        for line in _slices_of_rows(_module_of(name), _tree(name))
        if name not in MAY_SLICE
    ] == []
    source = "from recovery.rules.findings import Finding\ndef f(a: Finding): return a[:4]"
    assert _slices_of_rows("a", ast.parse(source)) == [2]


@pytest.mark.parametrize(
    ("call", "is_seen"),
    [
        ("Finding(a, b, c, d)", True), ("Finding(*a)", True), ("Finding(a, *b, message=d)", True),
        ("Finding(a, b, c, message=d)", False), ("Finding(check_id=a)", False),
        ("TopicPartition(*a)", False), ("Unknown(a, b, c, d)", False),
    ],
)  # fmt: skip
def test_the_rule_sees_rows_by_place(call: str, *, is_seen: bool) -> None:
    source = (
        "from recovery.rules.findings import Finding\n"
        "from storage.file_names import TopicPartition\n"
    )
    assert bool(_rows_by_place("a", ast.parse(source + call))) is is_seen


def test_only_output_prints() -> None:
    assert [
        f"{name}:{line}"
        for name in NAMES
        if name not in MAY_PRINT
        for line, function in _named_calls(name)
        if function == "print"
    ] == []


def test_modules_are_named_and_short() -> None:
    nameless = {"common", "helper", "helpers", "misc", "util", "utils"}
    assert [name for name in NAMES if Path(name).stem in nameless] == []
    lines = {name: len((ROOT / name).read_text().splitlines()) for name in NAMES}
    assert {name: count for name, count in lines.items() if count > LINES_MAX} == {}
    small = [
        name
        for name, count in lines.items()
        if count < LINES_MIN and not name.endswith("__init__.py") and "/lab/" not in name
    ]
    assert len(small) <= SMALL_MODULES_MAX


def test_functions_are_short() -> None:
    long = {
        node.name
        for name in NAMES
        for node in _nodes(_tree(name), ast.FunctionDef, ast.AsyncFunctionDef)
        if (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX
        and not (name.startswith("eoctl/commands/") and node.args.defaults)
    }
    assert long == {*LONG_FUNCTIONS}


def test_value_classes_are_shared() -> None:
    """A class of values is worth its name if two places build it, or two modules read it."""
    classes: dict[str, str] = {}
    built: dict[str, int] = {}
    named: dict[str, set[str]] = {}
    for name in NAMES:
        for node in _nodes(_tree(name), ast.ClassDef):
            if "NamedTuple" in map(ast.unparse, node.bases):
                classes[node.name] = name
        for node in _nodes(_tree(name), ast.Call):
            word = getattr(node.func, "attr", getattr(node.func, "id", ""))
            built[word] = built.get(word, 0) + 1
        for node in _nodes(_tree(name), ast.Name, ast.Attribute):
            word = node.id if isinstance(node, ast.Name) else node.attr
            named.setdefault(word, set()).add(name)
    own = [
        each
        for each, home in classes.items()
        if built.get(each, 0) <= 1 and not named.get(each, set()) - {home}
    ]
    assert len(own) <= OWN_VALUES_MAX


FORMATS = sorted(
    path.stem for path in (ROOT / "storage/formats").glob("*.py") if path.stem != "__init__"
)
VERBS = sorted(
    path.stem for path in (ROOT / "eoctl/commands").glob("*.py") if path.stem != "__init__"
)


def _missing(names: list[str]) -> list[str]:
    assert names
    return [name for name in names if not (ROOT / name).exists()]


def test_each_format_has_its_tests_and_its_page() -> None:
    assert _missing([f"tests/storage/formats/test_{stem}.py" for stem in FORMATS]) == []
    pages = [NO_PAGE_OF_ITS_OWN.get(stem, stem).replace("_", "-") for stem in FORMATS]
    assert _missing([f"man/eoctl-{page}.5" for page in pages]) == []


def test_each_command_has_its_tests_and_its_page() -> None:
    lab = {"sim", "bench"}
    assert (
        _missing([f"tests/{'lab' if stem in lab else 'cli'}/test_{stem}.py" for stem in VERBS])
        == []
    )
    assert _missing([f"man/eoctl-{stem.replace('_', '-')}.1" for stem in VERBS]) == []


@pytest.mark.mandoc
def test_man_pages_pass_mandoc() -> None:
    assert MAN_PAGES
    mandoc = jars.tool("mandoc")
    done = subprocess.run(
        [mandoc, "-T", "lint", "-W", "warning", *MAN_PAGES],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_references_between_man_pages_lead_somewhere() -> None:
    pages = {page.name for page in MAN_PAGES}
    dangling = [
        f"{page.name}: {name}({section})"
        for page in MAN_PAGES
        for name, section in re.findall(r"^\.Xr (eoctl\S*) (\d)", page.read_text(), re.MULTILINE)
        if f"{name}.{section}" not in pages
    ]
    assert dangling == []


def _project_files() -> list[Path]:
    """What git tracks or would track; without git all files outside of hidden and made ones."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if listed.returncode == 0 and (ROOT / ".git").exists():
        files = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        folders = (*PACKAGES, "tests", "man", "docs", "bench", "scripts", ".ci")
        files = [path for folder in folders for path in (ROOT / folder).rglob("*")]
        files += list(ROOT.iterdir())
    return [path for path in files if path.is_file() and "__pycache__" not in path.parts]


def test_no_file_names_a_place_of_one_machine() -> None:
    """Absolute paths of somebody's home or build directory do not exist elsewhere."""
    place = re.compile(rb"(?<![\w.~*\"'}-])/(?:home|root|work|tmp/gold|tmp/kj)/[\w.-]+")
    found = [
        (str(path.relative_to(ROOT)), match[0].decode())
        for path in _project_files()
        if path.suffix != ".xz"
        for match in place.finditer(path.read_bytes())
    ]
    assert found == []


def _written_limits(tree: ast.Module) -> list[int]:
    """Lines on which a greatest number of 16, 32 or 64 bits is worked out, or written out."""
    bits = (15, 31, 63)
    return [
        node.lineno
        for node in ast.walk(tree)
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Pow | ast.LShift)
            and isinstance(node.right, ast.Constant)
            and isinstance(node.left, ast.Constant)
            and (node.left.value, node.right.value)
            in {(1 if isinstance(node.op, ast.LShift) else 2, each) for each in bits}
        )
        or (isinstance(node, ast.Constant) and node.value in [2**each - 1 for each in bits])
    ]


def test_the_greatest_numbers_stand_in_one_place() -> None:
    assert len(_written_limits(_tree("storage/limits.py"))) > 3
    assert [
        f"{name}:{line}"
        for name in NAMES
        if name != "storage/limits.py"
        for line in _written_limits(_tree(name))
    ] == []

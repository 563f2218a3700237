"""The declarations of _ffi.py are the header's, and the library survives what
a C program may do to it."""

from __future__ import annotations

import ctypes
import random
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

import dlease
import pytest
from dlease import _errors, _ffi
from support import ROOT, sql

HEADER = re.sub(r"(?s)/\*.*?\*/", "", (ROOT / "include" / "dlease.h").read_text())

SCALARS = {
    "uint64_t": c_uint64,
    "uint32_t": c_uint32,
    "int32_t": c_int32,
    "dl_status": c_int32,
    "size_t": c_size_t,
    "const char *": c_char_p,
    "char *": c_char_p,
    "size_t *": ctypes.POINTER(c_size_t),
    "void": None,
    "const dl_client_options *": ctypes.POINTER(_ffi.ClientOptions),
    "const dl_acquire_options *": ctypes.POINTER(_ffi.AcquireOptions),
    "dl_event *": ctypes.POINTER(_ffi.Event),
    "dl_holder *": ctypes.POINTER(_ffi.Holder),
    "dl_stats *": ctypes.POINTER(_ffi.Stats),
}


def ctype(declared: str) -> object:
    """What a C type is in ctypes; handles are void pointers."""
    declared = " ".join(declared.replace("*", " * ").split())
    if declared in SCALARS:
        return SCALARS[declared]
    if re.fullmatch(r"dl_\w+ \* \*", declared):
        return ctypes.POINTER(c_void_p)
    assert re.fullmatch(r"(const )?dl_\w+ \*", declared), declared
    return c_void_p


def field(kind: str, name: str, declaration: str) -> tuple[str, object]:
    """The name and type of a field; of an array of characters its length."""
    if text := re.search(r"char (\w+)\[(\d+)\]", declaration):
        return text[1], int(text[2])
    return name, ctype(kind)


def as_declared(kind: Any) -> object:
    return kind._length_ if issubclass(kind, ctypes.Array) else kind


def split(declaration: str) -> tuple[str, str]:
    """The type and the name of a parameter or field."""
    name = re.findall(r"\w+", declaration)[-1]
    return declaration.strip().removesuffix(name), name


def test_every_function_is_declared_as_in_the_header():
    found = {}
    for result, name, parameters in re.findall(r"(?m)^((?:const )?\w+ \*?)(dl_\w+)\(([^)]*)\);", HEADER):
        arguments = [] if parameters == "void" else [ctype(split(each)[0]) for each in parameters.split(",")]
        found[name] = (ctype(result), arguments)
    assert len(found) >= 28
    assert found == _ffi.FUNCTIONS
    for name, (restype, argtypes) in found.items():
        function = getattr(_ffi.library, name)
        assert (function.restype, function.argtypes) == (restype, argtypes)


STRUCTURES = [_ffi.ClientOptions, _ffi.AcquireOptions, _ffi.Event, _ffi.Holder, _ffi.Stats]


@pytest.mark.parametrize("structure", STRUCTURES)
def test_every_structure_is_declared_as_in_the_header(structure):
    name = structure.__doc__.strip(".")
    body = re.search(r"typedef struct \{([^}]*)\} %s;" % name, HEADER).group(1)
    fields = [split(each) for each in body.split(";")[:-1]]
    declared = [field(kind, name, each) for (kind, name), each in zip(fields, body.split(";"))]
    assert [(name, as_declared(kind)) for name, kind in structure._fields_] == declared
    assert structure().size == ctypes.sizeof(structure)


def test_every_number_is_the_headers():
    numbers = {name: int(value) for name, value in re.findall(r"#define DL_(\w+) (-?\d+)\n", HEADER)}
    statuses = {name: value for name, value in numbers.items() if name.startswith("STATUS_")}
    assert {f"STATUS_{status.name}": status.value for status in _errors.Status} == statuses
    kinds = {name: value for name, value in numbers.items() if name.startswith("KIND_")}
    assert {f"KIND_{name.upper()}": number for name, number in _ffi.KINDS.items()} == kinds
    causes = {name: value for name, value in numbers.items() if name.startswith("LOST_")}
    assert {"LOST_NOT": 0} | {f"LOST_{name.upper()}": n for n, name in _ffi.LOST_CAUSES.items()} == causes
    assert numbers["ABI_VERSION"] == _ffi.ABI_VERSION == _ffi.library.dl_abi_version()
    assert (numbers["ACQUIRE_MANUAL_RENEW"], numbers["ACQUIRE_UNFAIR"]) == (_ffi.MANUAL_RENEW, _ffi.UNFAIR)
    assert re.search(r'DL_VERSION_STRING "(.*)"', HEADER).group(1) == dlease.__version__
    project = (ROOT / "bindings" / "python" / "pyproject.toml").read_text()
    assert f'\nversion = "{dlease.__version__}"\n' in project


def test_only_ffi_knows_ctypes():
    for file in (ROOT / "bindings" / "python" / "src" / "dlease").glob("*.py"):
        imported = re.findall(r"(?m)^(?:import|from) (\w+)", file.read_text())
        assert ("ctypes" in imported) == (file.name == "_ffi.py")


def test_a_library_of_another_abi_is_refused_on_import(program, tmp_path):
    for source, said in [
        ("unsigned dl_abi_version(void) { return 7; }", "interface 7, and this package is for 0"),
        (f"unsigned dl_abi_version(void) {{ return {_ffi.ABI_VERSION}; }}", "too old: it has no dl_version"),
        ("int nothing;", "dl_abi_version"),
    ]:
        library = tmp_path / f"{abs(hash(source))}.so"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", library, "-x", "c", "-"], input=source, text=True, check=True
        )
        process = program("import dlease", DLEASE_LIBRARY=str(library))
        _, err = process.communicate(timeout=20)
        assert process.returncode == 1
        assert "ImportError: dlease: " in err and said in err and str(library) in err
    _, err = program("import dlease", DLEASE_LIBRARY="/not/there.so").communicate(timeout=20)
    assert "ImportError: dlease: cannot load its library /not/there.so" in err


def test_null_everywhere_is_an_answer():
    invalid = dlease.Status.INVALID_ARGUMENT
    for name, (restype, argtypes) in _ffi.FUNCTIONS.items():
        nothing = [0 if argument in (c_int32, c_uint32, c_uint64) else None for argument in argtypes]
        answer = getattr(_ffi.library, name)(*nothing)
        if name in ("dl_client_open", "dl_client_ping", "dl_acquire", "dl_renew", "dl_release"):
            assert answer == invalid, name
            error = c_void_p()
            assert getattr(_ffi.library, name)(*nothing[:-1], byref(error)) == invalid
            assert _ffi.library.dl_error_status(error) == invalid
            assert b"NULL" in _ffi.library.dl_error_message(error)
            _ffi.library.dl_error_free(error)
        if name == "dl_cancel_new":
            _ffi.library.dl_cancel_free(answer)


def test_options_of_any_size_are_an_answer(client):
    for structure in (_ffi.ClientOptions, _ffi.AcquireOptions):
        for size in (0, 1, 7, 2**64 - 1):
            options = structure()
            options.size = size
            out = c_void_p()
            if structure is _ffi.ClientOptions:
                status = _ffi.library.dl_client_open(b"mysql://h/d", byref(options), byref(out), None)
            else:
                status = _ffi.library.dl_acquire(
                    client._handle.pointer, b"k", byref(options), byref(out), None
                )
            assert (status, out.value) == (dlease.Status.INVALID_ARGUMENT, None)


def test_unknown_kinds_and_flags_are_refused(client, key):
    for options in ({"kind": 3}, {"kind": -1}, {"flags": 8}, {"flags": 2**32 - 1}):
        out = c_void_p()
        status = _ffi.library.dl_acquire(
            client._handle.pointer, key.encode(), byref(_ffi.AcquireOptions(**options)), byref(out), None
        )
        assert (status, out.value) == (dlease.Status.INVALID_ARGUMENT, None)


def test_a_second_release_of_a_handle_is_an_answer(client, key):
    grant = _ffi.Grant()
    status, _ = client._handle.acquire(grant, _ffi.Cancel(), key.encode(), _ffi.AcquireOptions())
    assert status == 0
    assert _ffi.library.dl_lock_key(grant.pointer) == key.encode()
    assert [grant.release()[0] for _ in range(3)] == [0, dlease.Status.NOT_HELD, dlease.Status.NOT_HELD]


def test_a_fired_token_ends_a_call_that_comes_later(client, other, key):
    cancel = _ffi.Cancel()
    cancel.fire()
    cancel.fire()
    with other.lock(key):
        options = _ffi.AcquireOptions(wait_ms=_ffi.WAIT_FOREVER)
        status, failure = client._handle.acquire(_ffi.Grant(), cancel, key.encode(), options)
    assert (status, failure) == (dlease.Status.CANCELLED, None)


def test_urls_of_garbage_are_answers():
    chosen = random.Random(1)
    pieces = ["mysql://", "user", ":", "@", "/", "?", "tls=", "%", "%zz", "[::1]", ",", "é", "host", "3306"]
    for _ in range(5000):
        url = "".join(chosen.choice(pieces) for _ in range(chosen.randrange(12)))
        if chosen.random() < 0.3:
            url = "".join(chr(chosen.randrange(1, 0x2FF)) for _ in range(chosen.randrange(60)))
        try:
            dlease.Client(url).close()
        except dlease.InvalidArgument:
            pass


@pytest.mark.parametrize("token", [2**32, 2**53, 2**62, 2**63 - 2])
def test_tokens_of_64_bits_survive(client, url, key, token):
    with client.lock(key):
        pass
    sql(url, "UPDATE dl_lock SET token = %s WHERE lock_key = %s", token, key)
    with client.lock(key) as lock:
        assert lock.token >= token + 1
        if token > 2**53:
            assert lock.token == token + 1
        lock.renew()
    sql(url, "DELETE FROM dl_lock WHERE lock_key = %s", key)


def test_handles_of_64_bits_survive(url, key):
    assert ctypes.sizeof(c_void_p) == 8

    def use():
        # The main thread's heap may lie below 4 GB; those of others lie above,
        # and an int would have cut such an address.
        with dlease.Client(url) as client, client.lock(key) as lock:
            (grant,) = lock._grants
            return client._handle.pointer.value, grant.pointer.value

    with ThreadPoolExecutor(1) as pool:
        for address in pool.submit(use).result():
            assert address > 2**32


def test_an_event_or_counters_of_another_size_are_an_answer(client):
    invalid = dlease.Status.INVALID_ARGUMENT
    pointer = client._handle.pointer
    for size in (0, 1, 7, 2**64 - 1):
        event, stats = _ffi.Event(), _ffi.Stats()
        event.size = stats.size = size
        assert _ffi.library.dl_client_next_event(pointer, 0, byref(event)) == invalid
        assert _ffi.library.dl_client_stats(pointer, byref(stats)) == invalid
    assert _ffi.library.dl_client_next_event(pointer, 0, None) == invalid
    assert _ffi.library.dl_client_event_fd(None) == -1


def test_counters_tell_what_was_done(client, key):
    before = client.stats()
    with client.lock(key) as lock:
        assert client.lock(key).acquire(timeout=0.1) is False
        lock.renew()
    after = client.stats()
    for counter in ("grants", "waits", "time_outs", "renewals", "releases"):
        assert after[counter] == before[counter] + 1, counter
    assert after["waiting"] == 0 and after["connections"] >= 1
    client.close()
    assert set(client.stats().values()) == {0}

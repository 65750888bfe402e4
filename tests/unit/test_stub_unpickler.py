"""Files with objects besides their weights are read, and nothing in them is imported, called or changed."""

import copyreg
import dataclasses
import enum
import io
import os
import pathlib
import pickle
import subprocess
import sys
import zipfile
from collections import Counter, OrderedDict, defaultdict
from types import SimpleNamespace

import numpy as np
import pytest

import toposcale
from toposcale.io.bin_files import load_content, open_bin
from toposcale.io.errors import UserError

torch = pytest.importorskip("torch")

WEIGHT = torch.arange(12.0).reshape(3, 4)


@dataclasses.dataclass
class Options:
    rate: float = 1e-3


class Mode(enum.Enum):
    FAST = 1


class Scheduler:
    def __init__(self):
        self.function = self.step

    def step(self):
        return 1


class Recorder(dict):
    pass


class State(OrderedDict):
    pass


BESIDE = {
    "a dataclass": Options(),
    "an enum": Mode.FAST,
    "a bound method": Scheduler(),
    "a namespace": SimpleNamespace(a=1, inner=Options()),
    "an array": np.arange(6.0).reshape(2, 3),
    "an array in the order of Fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "numbers": (np.float64(1.5), np.int32(2), np.bool_(True)),
    "a generator": np.random.default_rng(0),
    "a class": Options,
    "dictionaries": (defaultdict(list, a=[1]), Counter("ab"), Recorder(a=1)),
    "a set": {1, 2, Mode.FAST},
    "a large-endian array": np.arange(3, dtype=">f4"),
    "arrays of other things": (np.array(["a", "bc"]), np.array([Options(), None]), np.zeros(2, [("x", "f4")])),
}


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("name", BESIDE)
def test_open_bin_weights_beside_any_object_are_read(tmp_path, name, protocol):
    content = {"epoch": 3, "model_state_dict": {"fc.weight": WEIGHT}, "beside": BESIDE[name]}
    torch.save(content, tmp_path / "a.pt", pickle_protocol=protocol)
    assert torch.equal(open_bin(tmp_path / "a.pt").rows("fc.weight"), WEIGHT)
    assert open_bin(tmp_path / "a.pt").content["epoch"] == 3


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f4", ">f8", "<i8", "f2", "?", "<c8"])
def test_load_content_arrays_have_their_values(tmp_path, kind, order, protocol):
    values = np.asarray(np.arange(6).reshape(2, 3), kind, order=order)
    torch.save({"w": values, "options": Options(), "scalar": values[1, 2]}, tmp_path / "a.pt", pickle_protocol=protocol)
    content, _ = load_content(tmp_path / "a.pt")
    np.testing.assert_array_equal(content["w"], values)
    assert content["w"].dtype.newbyteorder("=") == values.dtype.newbyteorder("=")
    assert content["scalar"] == values[1, 2]


def test_open_bin_model_of_arrays_and_one_saved_whole_are_read(tmp_path):
    torch.save({"w": WEIGHT.numpy(), "options": Options()}, tmp_path / "arrays.pt")
    assert torch.equal(open_bin(tmp_path / "arrays.pt").rows("w"), WEIGHT)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    torch.save(network, tmp_path / "whole.pt")
    read = open_bin(tmp_path / "whole.pt")
    assert read.stored.keys() == dict(network.named_parameters()).keys()
    assert all(torch.equal(read.rows(name), values) for name, values in network.named_parameters())
    torch.save({"state_dict": State(w=WEIGHT)}, tmp_path / "own.pt")
    assert torch.equal(open_bin(tmp_path / "own.pt").rows("w"), WEIGHT)


def test_open_bin_what_is_not_loaded_is_said_by_its_name(tmp_path):
    torch.save({"model": {"w": WEIGHT}, "options": Options()}, tmp_path / "a.pt")
    assert open_bin(tmp_path / "a.pt").foreign == [f"{__name__}.Options"]
    notes = toposcale.describe(tmp_path / "a.pt", features="norms").attrs["notes"]
    assert notes[0] == f"not loaded, and not needed: objects of {__name__}.Options"
    torch.save({"model": {"w": WEIGHT}}, tmp_path / "b.pt")
    assert open_bin(tmp_path / "b.pt").foreign == []


def test_open_bin_parts_with_weights_offered_and_one_alone_read(tmp_path):
    torch.save({"policy_state": {"w": WEIGHT}, "steps": 3}, tmp_path / "one.pt")
    assert open_bin(tmp_path / "one.pt").stored.keys() == {"w"}
    torch.save({"policy_state": {"w": WEIGHT}, "value_state": {"w": WEIGHT}}, tmp_path / "two.pt")
    with pytest.raises(
        UserError, match=r"several parts with weights, policy_state and value_state; save .*'policy_state'"
    ):
        open_bin(tmp_path / "two.pt")
    torch.save({"obs_mean": np.zeros(4), "model_state_dict": {"w": WEIGHT}}, tmp_path / "mean.pt")
    assert open_bin(tmp_path / "mean.pt").stored.keys() == {"w"}
    torch.save({"state": {0: {"exp_avg": WEIGHT}}, "param_groups": []}, tmp_path / "optimizer.pt")
    with pytest.raises(UserError, match="the state of an optimizer, which holds no weights"):
        open_bin(tmp_path / "optimizer.pt")


class Call:
    """Pickled as the call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def owned(path):
    path.mkdir()


def calls(marker):
    """What would make the directory `marker`, or return what could."""
    code = f"__import__('os').mkdir({str(marker)!r})"
    bare = pickle.dumps(Call(os.mkdir, str(marker)))
    return {
        "os.system": Call(os.system, f"mkdir {marker}"),
        "os.mkdir": Call(os.mkdir, str(marker)),
        "eval": Call(eval, code),
        "exec": Call(exec, code),
        "subprocess": Call(subprocess.check_call, ["mkdir", str(marker)]),
        "a function of one's own": Call(owned, marker),
        "a nested pickle": Call(pickle.loads, bare),
        "a loader of torch": Call(torch.load, io.BytesIO(bare)),
        "getattr of a module": Call(getattr, Call(__import__, "os"), "mkdir"),
        "getattr of a builder": Call(getattr, torch._utils._rebuild_tensor_v2, "__globals__"),
        "a call of what a stub returns": Call(Call(getattr, Options, "run"), str(marker)),
        "copyreg": Call(copyreg._reconstructor, Options, object, None),
        "an extension": Call(copyreg.add_extension, "os", "system", 77),
        "a builder with a function": Call(torch._tensor._rebuild_from_type_v2, os.mkdir, Options, (str(marker),), None),
        "a method of a path": Call(type(marker).mkdir, marker),
    }


HARMLESS = {"a function of one's own", "a nested pickle", "copyreg", "an extension", "a method of a path"}


def outcome(file):
    try:
        return "read" if torch.equal(open_bin(file).rows("w"), WEIGHT) else "wrong"
    except UserError as error:
        return "refused" if "Python objects other than tensors, which are not loaded" in str(error) else str(error)


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("name", calls(pathlib.Path("owned")))
def test_open_bin_nothing_is_called_whatever_a_file_says(tmp_path, name, protocol):
    marker = tmp_path / "owned"
    payload = calls(marker)[name]
    if isinstance(payload.call[0], Call):  # pickle itself asks for a function, a file does not
        monkey = payload
        payload = SimpleNamespace(inner=monkey.call[0])
    try:
        torch.save({"model": {"w": WEIGHT}, "beside": payload}, tmp_path / "a.pt", pickle_protocol=protocol)
    except (pickle.PicklingError, TypeError):
        pytest.skip("cannot be pickled in this protocol")
    before = dict(vars(torch._utils._rebuild_tensor_v2))
    assert (
        outcome(tmp_path / "a.pt") == "read" if name in HARMLESS else outcome(tmp_path / "a.pt") in ("read", "refused")
    )
    assert not marker.exists()
    assert vars(torch._utils._rebuild_tensor_v2) == before
    # In the place of the weights it is none of them.
    torch.save({"w": payload}, tmp_path / "b.pt", pickle_protocol=protocol)
    assert outcome(tmp_path / "b.pt") == "refused"
    assert not marker.exists()


def with_pickle(path, program):
    """An archive of torch whose pickle is this program of opcodes."""
    torch.save({"w": WEIGHT}, path)
    with zipfile.ZipFile(path) as archive:
        entries = {entry: archive.read(entry) for entry in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for entry, content in entries.items():
            archive.writestr(entry, program if entry.endswith("data.pkl") else content)
    return path


PROGRAMS = {
    "persistent id that is not a storage": b"\x80\x02(U\x07storagecos\nPathLike\nU\x010U\x03cpuK\x0ctQ.",
    "persistent id of a stub": b"\x80\x02(U\x07storagecfoo\nBarStorage\nU\x010U\x03cpuK\x0ctQ.",
    "persistent id of another kind": b"\x80\x02(U\x06modulecfoo\nBar\ntQ.",
    "tensor on a stub": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(cfoo\nBar\nK\x00K\x03\x85K\x01\x85\x89}tR.",
    "attributes of a builder": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(N}U\x08__code__K\x01sT\x00\x00\x00\x00tb.",
    "slots of a builder": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(N}U\x0c__defaults__K\x01stb.",
    "instance of a builder": b"\x80\x02(K\x01ictorch._utils\n_rebuild_tensor_v2\n.",
    "array of objects": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
    b"(K\x01K\x01\x85cnumpy\ndtype\n(U\x01OK\x00K\x01tR\x89]K\x01atb.",
    "array longer than its bytes": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
    b"(K\x01J\xff\xff\xff\x7f\x85cnumpy\ndtype\n(U\x02f8K\x00K\x01tR\x89C\x08\x00\x00\x00\x00\x00\x00\x00\x00tb.",
    "type with fields": b"\x80\x02cnumpy\ndtype\n(U\x03V99K\x00K\x01tR(K\x03U\x01|N(tUNtJ\xff\xff\xff\xffK\x00K?tb.",
    "bytes in a codec that grows": b"\x80\x02c_codecs\nencode\n(U\x01aU\x03zlbtR.",
    "extension code": b"\x80\x02\x82\x4d.",
    "cut": b"\x80\x02}",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_open_bin_pickle_made_to_do_harm_is_refused_in_one_line(tmp_path, name):
    builder = torch._utils._rebuild_tensor_v2
    before = builder.__code__, builder.__defaults__
    file = with_pickle(tmp_path / "a.pt", PROGRAMS[name])
    with pytest.raises(UserError, match=r"a\.pt: ") as caught:
        open_bin(file)
    assert "\n" not in str(caught.value)
    assert (builder.__code__, builder.__defaults__) == before


def test_open_bin_no_module_is_imported_and_no_code_run(tmp_path):
    """With an audit hook, in a process of its own, since hooks stay."""
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')\n\n\nclass Thing: ...\n")
    with_pickle(tmp_path / "a.pt", b"\x80\x02}U\x05modelcevil\nThing\n)\x81}U\x01aK\x01sbs.")
    script = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(tmp_path)!r})
from toposcale.io.stub_unpickler import load_with_stubs
file = Path({str(tmp_path / "a.pt")!r})
load_with_stubs(file)  # what PyTorch itself imports when it reads the first file
events = []
sys.addaudithook(lambda event, arguments: events.append((event, arguments)))
content, names = load_with_stubs(file)
found = [event for event in events if event[0] in ("import", "exec", "compile", "os.system", "subprocess.Popen")]
print(names, found, "evil" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['evil.Thing'] [] False"


def test_open_bin_names_an_unreadable_object_and_a_remedy(tmp_path):
    torch.save(Options(), tmp_path / "a.pt")
    with pytest.raises(
        UserError, match=r"Options\); convert it in the program that made it: checkpoint = .*torch\.save\("
    ):
        open_bin(tmp_path / "a.pt")
    # Files from before torch 1.6 are not archives.
    torch.save({"model": {"w": WEIGHT}, "o": Options()}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(UserError, match="which are not loaded"):
        open_bin(tmp_path / "old.pt")

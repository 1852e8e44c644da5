"""Our schema of Caffe's text files against Caffe's own, in one process."""
import pytest
from caffe.proto import caffe_pb2
from conftest import ROOT
from google.protobuf import text_format

from ccnn._util.errors import UserError
from ccnn.nets.caffe_files import parse_net, parse_solver, read_net, read_solver
from ccnn.nets.schema import classes

FILES = sorted((*ROOT.glob("prototxt/*.prototxt"), *ROOT.glob("solvers/*.prototxt")))

LEFT_OUT = {("NetParameter", "layers"), ("LayerParameter", "blobs")}


def facts(field):
    """All that decides how a field is read and written, but for the names of message types."""
    return {"name": field.name, "number": field.number, "label": field.label, "type": field.type,
            "default": None if field.message_type or field.label == field.LABEL_REPEATED else field.default_value,
            "packed": field.GetOptions().packed, "message": field.message_type and field.message_type.name,
            "values": field.enum_type and [(value.name, value.number) for value in field.enum_type.values]}


def test_every_field_is_caffes_and_none_is_missing():
    todo, done = ["NetParameter", "SolverParameter"], set()
    while todo:
        name = todo.pop()
        if name in done:
            continue
        done.add(name)
        theirs = caffe_pb2.DESCRIPTOR.message_types_by_name[name]
        wanted = {field.number: facts(field) for field in theirs.fields if (name, field.name) not in LEFT_OUT}
        assert {field.number: facts(field) for field in classes()[name].DESCRIPTOR.fields} == wanted
        todo += [field["message"] for field in wanted.values() if field["message"]]
    assert done == set(classes()) and len(done) > 50


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_file_of_the_repository_says_the_same_as_to_caffe(path):
    ours, theirs = (read_solver(path), caffe_pb2.SolverParameter()) if path.parent.name == "solvers" else \
        (read_net(path), caffe_pb2.NetParameter())
    text_format.Parse(path.read_text(), theirs)
    assert str(ours) == str(theirs)
    assert ours.SerializeToString(deterministic=True) == theirs.SerializeToString(deterministic=True)
    assert type(theirs).FromString(ours.SerializeToString()) == theirs


def test_there_are_files_to_compare():
    assert len(FILES) > 60


@pytest.mark.parametrize("text, line, said", [
    ('name: "a"\nlayer {\n  convolution_param { hole: 2 }\n}', 3, "ConvolutionParameter has no field 'hole'"),
    ('layer { }\nlayers { name: "a" }', 2, "upgrade_net_proto_text"),
    ("layer { blobs { data: 1 } }", 1, "LayerParameter has no field 'blobs'"),
    ("layer { convolution_param { num_output: -1 } }", 1, "out of range"),
    ("layer { phase: LATER }", 1, "Phase"),
    ("layer {\n\n", 1, "Expected"),
    ("\n\nlayer { convolution_param { pad: 1" + 500 * "0" + " } }", 3, "digits"),
    ('layer { name: "\\xff" }', 1, "utf-8"),
    ("\u202e" * 1000, 1, "\\u202e"),
])
def test_what_a_net_cannot_say_is_one_line_with_the_files_line(text, line, said):
    with pytest.raises(UserError) as error:
        parse_net(text.encode(), "a.prototxt")
    assert str(error.value).startswith(f"a.prototxt: is not a net: line {line}: ") and said in str(error.value)
    assert str(error.value).isprintable() and len(str(error.value)) < 300


def test_bytes_that_are_not_text_are_one_line():
    with pytest.raises(UserError, match="a.prototxt: is not a solver: .*utf-8"):
        parse_solver(b"net: '\xff'", "a.prototxt")


@pytest.mark.parametrize("change, said", [("max_iter=many", "max_iter=many"), ("speed=1", "no field 'speed'"),
                                          ("net=a\"b", "net=a"), ("max_iter", "max_iter")])
def test_a_wrong_change_of_a_solver_is_one_line(change, said):
    with pytest.raises(UserError, match="--set") as error:
        read_solver(ROOT / "solvers/head_tags.prototxt", [change])
    assert said in str(error.value) and "\n" not in str(error.value)

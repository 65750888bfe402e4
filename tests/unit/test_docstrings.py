"""Every function of the public packages documents its arguments, result and an example that doctest runs."""

import importlib
import inspect

import pytest

PACKAGES = (
    "toposcale",
    "toposcale.homology",
    "toposcale.landscape",
    "toposcale.statistics",
    "toposcale.forecasting",
    "toposcale.monitor",
)
PUBLIC = [f"{package}.{name}" for package in PACKAGES for name in importlib.import_module(package).__all__]


def public(name):
    package, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(package), attribute)


def sections(value):
    """Return the lines of a docstring by section; the summary is the section ""."""
    lines, found, section = inspect.getdoc(value).splitlines(), {}, ""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if following and set(following) == {"-"}:
            section = line
        found.setdefault(section, []).append(line)
    return found


def named_in(lines):
    """Return the names that a section of parameters or attributes describes."""
    return {name.strip() for line in lines if line[:1].isalpha() for name in line.split(" : ")[0].split(",")}


@pytest.mark.parametrize("name", [name for name in PUBLIC if inspect.isfunction(public(name))])
def test_a_public_function_documents_its_arguments_result_and_an_example(name):
    found = sections(public(name))
    assert len(found[""][0]) <= 120
    signature = inspect.signature(public(name))
    arguments = {key for key, argument in signature.parameters.items() if argument.kind is not argument.VAR_KEYWORD}
    assert arguments <= named_in(found["Parameters"])
    assert signature.return_annotation is None or found["Returns"][2:]
    assert any(line.startswith(">>> ") for line in found["Examples"])


@pytest.mark.parametrize("name", [name for name in PUBLIC if inspect.isclass(public(name))])
def test_a_public_class_documents_its_fields(name):
    found = sections(public(name))
    documented = named_in(found.get("Parameters", [])) | named_in(found.get("Attributes", []))
    fields = {field for field in inspect.get_annotations(public(name)) if not field.startswith("_")}
    assert fields <= documented

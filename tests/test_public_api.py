"""What a package promises is what it has."""

import importlib
import inspect
import types

import pytest

PACKAGES = ["eventstore", "projections", "condensers", "foldlog"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_in_all_can_be_imported_and_there_is_no_other_public_name(package):
    module = importlib.import_module(package)
    promised = set(module.__all__)
    assert len(promised) == len(module.__all__), "a name stands twice in __all__"
    assert {name for name in promised if not hasattr(module, name)} == set()
    reachable = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType) and name != "annotations"
    }
    assert reachable <= promised


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_class_and_function_says_its_contract(package):
    module = importlib.import_module(package)
    silent = [
        name
        for name in module.__all__
        if (inspect.isclass(value := getattr(module, name)) or inspect.isfunction(value)) and not inspect.getdoc(value)
    ]
    assert silent == []

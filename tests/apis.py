"""What the systems that read deployed files take, as strict JSON Schema: a field that they do not
know is refused, too.

    Kubernetes' own objects       kubernetes-validate: made of Kubernetes' OpenAPI, a set for each minor version
    JobSet, TrainJob              kubeflow-trainer-api: models of the published API, here without their tolerance
    MPIJob, Volcano's Job         tests/schemas: written down from what those projects publish
    a training job of ModelArts   huaweicloudsdkmodelarts: models of the API, by its maker

A Pod template is Kubernetes' own in all of them. No system itself was asked. The packages take
seconds to import, so that only who asks does it.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import version as installed
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from packaging.version import Version

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from pydantic import BaseModel

Schema = dict[str, Any]

_OWN = Path(__file__).parent / "schemas"


def _folder(package: str) -> Path:
    """Return a package's folder, without an import of it."""
    found = find_spec(package)
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


_SETS = _folder("kubernetes_validate") / "kubernetes-json-schema"
VERSIONS = tuple(
    sorted({path.name[1:].rpartition(".")[0] for path in _SETS.glob("v*.*.*-strict")}, key=Version)[
        -4:
    ]
)
"""The last four minor versions of Kubernetes, oldest first."""
_HOME = "https://kubernetes.io/api/_definitions.json"  # as the sets themselves say

_FILES = {
    ("kubeflow.org/v2beta1", "MPIJob"): "mpijob.yaml",
    ("batch.volcano.sh/v1alpha1", "Job"): "volcano.yaml",
}
# Classes of kubeflow_trainer_api.models.
_MODELS = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): "JobsetV1alpha2JobSet",
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): "TrainerV1alpha1TrainJob",
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): "TrainerV1alpha1TrainingRuntime",
}
# Values that no package says: those of k8s.io/api/networking/v1, and of JobSet's
# api/jobset/v1alpha2/jobset_types.go.
_VALUES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "io.k8s.api.networking.v1.NetworkPolicySpec": {"policyTypes": ("Ingress", "Egress")},
    "io.k8s.api.networking.v1.NetworkPolicyPort": {"protocol": ("TCP", "UDP", "SCTP")},
    "JobsetV1alpha2DependsOn": {"status": ("Ready", "Complete")},
    "JobsetV1alpha2FailurePolicy": {"restartStrategy": ("Recreate", "BlockingRecreate", "InPlaceRestart")},
    "JobsetV1alpha2FailurePolicyRule": {
        "action": (
            "FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts", "RestartJob",
            "RestartJobAndIgnoreMaxRestarts",
        ),
    },
    "JobsetV1alpha2StartupPolicy": {"startupPolicyOrder": ("AnyOrder", "InOrder")},
    "JobsetV1alpha2SuccessPolicy": {"operator": ("All", "Any")},
}  # fmt: skip
_LABEL = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
_NAME = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


def validator(schema: Mapping[str, Any]) -> Draft202012Validator:
    """Return what validates documents by this JSON Schema."""
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema)


def mistakes(manifest: Mapping[str, Any], version: str) -> list[str]:
    """What the API server of this minor version would refuse, each with its place.

    Raises KeyError for an object of which nobody publishes a schema.
    """
    errors = _validator(manifest["apiVersion"], manifest["kind"], version).iter_errors(manifest)
    found = [f"{error.json_path}: {error.message}" for error in errors]
    return found or [*_refusals(manifest, "$", manifest["kind"])]


# Lists whose entries differ by these fields, which no schema says: Kubernetes' validation, and the
# list-map-keys of CustomResourceDefinitions.
_KEYS = {
    "volumes": ("name",), "volumeMounts": ("mountPath",), "env": ("name",), "containers": ("name",),
    "ports": ("containerPort", "protocol"),
}  # fmt: skip
_OF_TRAINJOB = {"volumeMounts": ("name",)}
_DOMAIN_PREFIXED = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9/%:@._~!$&'()*+,;=-]+"
_QUANTITY = r"\d+(\.\d+)?(m|k|[MGTPE]|[KMGTPE]i)?"
_NATIVE = r"cpu|memory|ephemeral-storage|hugepages-\w+"


def _refusals(value: Any, path: str, kind: str) -> Iterator[str]:
    """Name what servers refuse although no schema says it."""
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _refusals(each, f"{path}[{number}]", kind)
    for name, each in value.items() if isinstance(value, dict) else ():
        where = f"{path}.{name}"
        keys = (_OF_TRAINJOB if kind == "TrainJob" else {}).get(name) or _KEYS.get(name)
        if keys and isinstance(each, list):
            entries = [tuple(str(entry.get(key)) for key in keys) for entry in each]
            if len({*entries}) < len(entries):
                yield f"{where}: an entry is there twice"
        if name == "onExitCodes" and each["values"] != sorted({*each["values"]}):
            yield f"{where}: values must be ordered"
        if name == "manager" and not re.fullmatch(_DOMAIN_PREFIXED, each):
            yield f"{where}: a domain-prefixed path is needed"
        if name == "limits":
            for resource, quantity in each.items():
                native = re.fullmatch(_NATIVE, resource)
                form = _QUANTITY if native else r"\d+"
                if not re.fullmatch(form, quantity) or not (native or "/" in resource):
                    yield f"{where}: {resource}: {quantity}"
        if isinstance(each, int) and name != "terminationGracePeriodSeconds" and each >= 1 << 31:
            yield f"{where}: {each} is too large"
        yield from _refusals(each, where, kind)


def source(manifest: Mapping[str, Any]) -> str:
    """Where the schema of an object comes from; "" for Kubernetes' own."""
    key = manifest["apiVersion"], manifest["kind"]
    if key in _MODELS:
        return f"kubeflow-trainer-api {installed('kubeflow-trainer-api')}"
    return f"tests/schemas/{_FILES[key]}" if key in _FILES else ""


@functools.cache
def _validator(api: str, kind: str, version: str) -> Draft202012Validator:
    from jsonschema import Draft202012Validator
    from kubeflow_trainer_api import models
    from referencing import Registry, Resource

    known = _definitions(version)
    if (api, kind) in _FILES:
        schema = yaml.safe_load((_OWN / _FILES[api, kind]).read_text(encoding="utf-8"))
    elif (api, kind) in _MODELS:
        schema = _strict(getattr(models, _MODELS[api, kind]), known)
    else:
        group, _, number = api.rpartition("/")
        wanted = {"group": group, "kind": kind, "version": number}
        names = {
            _key(each): name
            for name, all_ in known["$defs"].items()
            for each in all_.get(_GROUPS, ())
        }
        schema = {"$ref": f"{_HOME}#/$defs/{names[_key(wanted)]}", "required": ["metadata"]}
    registry: Registry[Any] = Registry().with_resource(_HOME, Resource.from_contents(known))
    return Draft202012Validator(schema, registry=registry)


_GROUPS = "x-kubernetes-group-version-kind"


def _key(group: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(group.items()))


@functools.cache
def _definitions(version: str) -> Schema:
    """Kubernetes' definitions, with what its OpenAPI leaves to the server: values of fields, names
    and labels."""
    (folder,) = _SETS.glob(f"v{version}.*-local-strict")
    known: Schema = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))
    named = _class_names(known)
    for name, fields in [*_values_of_models(), *_VALUES.items()]:
        _limit(known["$defs"].get(named.get(name, name), {}), fields)
    meta = known["$defs"]["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"]
    meta["name"] |= {"pattern": _NAME, "maxLength": 253}
    meta["labels"]["additionalProperties"] = {"type": "string", "pattern": _LABEL, "maxLength": 63}
    return known


def _class_names(known: Schema) -> dict[str, str]:
    """What generated code calls Kubernetes' definitions: IoK8sApiCoreV1PodSpec for
    io.k8s.api.core.v1.PodSpec."""
    return {
        "".join(part[:1].upper() + part[1:] for part in re.split("[.-]", name)): name
        for name in known["$defs"]
    }


def _limit(schema: Schema, fields: Mapping[str, tuple[str, ...]]) -> None:
    """Let these fields, or each of a list, have these values alone."""
    for field, values in fields.items():
        if found := schema.get("properties", {}).get(field):
            found.get("items", found)["enum"] = [*values, None]


@functools.cache
def _values_of_models() -> tuple[tuple[str, dict[str, tuple[str, ...]]], ...]:
    """Class -> field -> values: the models' own checks of Kubernetes' types are the only place that
    says them."""
    from kubeflow_trainer_api import models

    return tuple(
        (name, dict(_values(each))) for name, each in vars(models).items() if isinstance(each, type)
    )


def _values(model: type[BaseModel]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name in dir(model):
        if name.endswith("_validate_enum"):
            try:
                getattr(model, name)("?")
            except ValueError as error:
                said = ast.literal_eval(str(error)[str(error).index("(") :])
                field = name.removesuffix("_validate_enum")
                yield (
                    model.model_fields[field].alias or field,
                    said if isinstance(said, tuple) else (said,),
                )
            except AttributeError:  # the values of a mapping, which only a status has
                continue


def _strict(model: type[BaseModel], known: Schema) -> Schema:
    """A model's schema that refuses other fields, with Kubernetes' own definitions in the place of
    its copies."""
    schema, named = model.model_json_schema(), _class_names(known)
    schema["$defs"] = {
        name: (
            {"$ref": f"{_HOME}#/$defs/{named[name]}"}
            if name in named
            else {**each, "additionalProperties": False}
        )
        for name, each in schema["$defs"].items()
    }
    for name, fields in _VALUES.items():
        _limit(schema["$defs"].get(name, {}), fields)
    return {
        **schema,
        "additionalProperties": False,
        "required": ["apiVersion", "kind", "metadata", "spec"],
    }


def mistakes_of_training_job(body: Mapping[str, Any]) -> list[str]:
    """What ModelArts' CreateTrainingJob would refuse, each with its place."""
    return [f"{each.json_path}: {each.message}" for each in _training_job().iter_errors(body)]


@functools.cache
def _training_job() -> Draft202012Validator:
    defs: Schema = {}
    wanted = ["Job"]
    while wanted:
        if (name := wanted.pop()) not in defs:
            defs[name] = _sdk_model(name)
            wanted += re.findall(r'"#/\$defs/(\w+)"', json.dumps(defs[name]))
    # As "Creating a Training Job" of the API reference has it; the models do not say so.
    defs["Job"]["required"] = ["kind", "metadata"]
    defs["Job"]["properties"]["kind"] = {"const": "job"}
    defs["JobMetadata"]["required"] = ["name"]
    defs["JobMetadata"]["properties"]["name"] = {
        "type": "string",
        "pattern": "^[A-Za-z0-9_-]{1,64}$",
    }
    return validator({"$ref": "#/$defs/Job", "$defs": defs})


@functools.cache
def _sdk_files() -> dict[str, Path]:
    """Class -> its file, by the class's name in small letters."""
    folder = _folder("huaweicloudsdkmodelarts") / "v1/model"
    return {path.stem.replace("_", ""): path for path in folder.glob("*.py")}


def _sdk_model(name: str) -> Schema:
    """A class of the SDK, read: its file names its fields and their types. Importing one would
    import all 1,285."""
    said = {
        each.targets[0].id: ast.literal_eval(each.value)
        for each in ast.walk(ast.parse(_sdk_files()[name.lower()].read_text(encoding="utf-8")))
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)
        if each.targets[0].id in ("openapi_types", "attribute_map")
    }
    names, types = said["attribute_map"], said["openapi_types"]
    fields = {names[field]: _sdk_type(kind) for field, kind in types.items()}
    return {"type": "object", "properties": fields, "additionalProperties": False}


def _sdk_type(kind: str) -> Schema:
    simple = {
        "str": "string",
        "int": "integer",
        "bool": "boolean",
        "float": "number",
        "datetime": "string",
    }
    if kind in simple:
        return {"type": simple[kind]}
    if kind == "object":
        return {}
    if found := re.fullmatch(r"list\[(.+)\]", kind):
        return {"type": "array", "items": _sdk_type(found[1])}
    if found := re.fullmatch(r"dict\(str, (.+)\)", kind):
        return {"type": "object", "additionalProperties": _sdk_type(found[1])}
    return {"$ref": f"#/$defs/{kind}"}

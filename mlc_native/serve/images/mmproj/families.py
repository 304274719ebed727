"""The projector types whose files are read: one table. What a family is, is in transformers.

A projector type is added with a row of PROJECTORS and a model in
tests/python/models/test_gguf_images.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from mlc_native.serve.images.mmproj.clip_towers import gemma3_plan, idefics3_plan, llava_plan
from mlc_native.serve.images.mmproj.file import MmprojFile
from mlc_native.serve.images.mmproj.keys import Keys
from mlc_native.serve.images.mmproj.other_towers import internvl_plan, pixtral_plan
from mlc_native.serve.images.mmproj.plan import TextModel, TowerPlan
from mlc_native.serve.images.mmproj.qwen_towers import qwen2_5_plan, qwen2_plan, qwen3_plan

_TYPE = "clip.projector_type"
_VISION_TYPE = "clip.vision.projector_type"  # of files that have a tower for sounds too

PROJECTORS: Mapping[str, Callable[[Keys, TextModel], TowerPlan]] = {
    "gemma3": gemma3_plan,
    "idefics3": idefics3_plan,
    "internvl": internvl_plan,
    "mlp": llava_plan,
    "pixtral": pixtral_plan,
    "qwen2.5vl_merger": qwen2_5_plan,
    "qwen2vl_merger": qwen2_plan,
    "qwen3vl_merger": qwen3_plan,
}

# The architectures that read the rows of these; those of the others are many.
_TEXT_MODELS: Mapping[str, tuple[str, ...]] = {
    "gemma3": ("Gemma3ForCausalLM",),
    "qwen2.5vl_merger": ("Qwen2_5_VLForConditionalGeneration",),
    "qwen2vl_merger": ("Qwen2_5_VLForConditionalGeneration",),
    "qwen3vl_merger": (
        *("Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"),
        *("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"),
    ),
}
_OF_ONE_PROJECTOR = {name for names in _TEXT_MODELS.values() for name in names}


def plan_of(file: MmprojFile, text: TextModel) -> TowerPlan:
    """The plan of a file's tower, whose keys and tensors are all checked.

    Raises:
        LoadError: the file is no tower, of a projector type that is not read, for another model, or
            lacks something.
    """
    architecture = file.values.get("general.architecture")
    if architecture != "clip":
        file.fail("general.architecture", f'must be "clip" for a tower, is {architecture!r:.40}')
    key = _VISION_TYPE if _VISION_TYPE in file.values else _TYPE
    name = file.values.get(key)
    if name is None and file.values.get("clip.has_llava_projector") is True:
        name = "mlp"  # as llama.cpp reads the first files
    if file.values.get("clip.has_vision_encoder", True) is not True:
        file.fail("clip.has_vision_encoder", "must be true: the file reads no images")
    if not isinstance(name, str) or name not in PROJECTORS:
        _refuse(file, key, name)
    _check_text_model(file, key, name, text)
    plan = PROJECTORS[name](Keys(file), text)
    plan.check(file)
    return plan


def _refuse(file: MmprojFile, key: str, name: object) -> NoReturn:
    known = ", ".join(sorted(PROJECTORS))
    file.fail(key, f"= {name!r:.60} is not supported; projector types that are read: {known}")


def _check_text_model(file: MmprojFile, key: str, name: str, text: TextModel) -> None:
    if name in _TEXT_MODELS:
        fits = text.architecture in _TEXT_MODELS[name]
    else:
        fits = text.architecture not in _OF_ONE_PROJECTOR
    if not fits:
        file.fail(key, f"= {name!r} is not for a model of the architecture {text.architecture}")

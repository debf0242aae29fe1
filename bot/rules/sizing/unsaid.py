"""Say what an estimate cannot know about a run, and what it assumed, because nobody said it."""

from __future__ import annotations

from bot.rules.sizing.media_models import MediaModel
from bot.rules.sizing.model_shapes import model
from bot.rules.sizing.workload import PLAIN_RESOLUTION, Workload, architecture


def unknown(work: Workload) -> tuple[str, ...]:
    """List what an estimate cannot know about this run, one sentence each; empty if time and cost can be computed."""
    found: list[str] = []
    if architecture(work) is None:
        if work.model:
            found.append(
                f"The size of {work.model} is not known here; write model=7B, model=30B-A3B for a mixture of experts, "
                "or layers= and width= from its config.json."
            )
        else:
            found.append("The model's size was not said; write it as model=7B.")
    if work.medium is not None:
        said = "seconds of audio are read was not said; write audio-hours=100."
        said = said if work.medium.sound else "images there are was not said; write images=10000."
        return () if work.total_tokens is not None else (f"How many {said}",)
    if work.total_tokens is None:
        found.append("How many tokens are processed was not said; write tokens=2B, or steps= with batch= and seq=.")
    if work.trains and (work.prompt_tokens or work.output_tokens):
        found.append("prompt-tokens= and output-tokens= belong to type=serving; write that, or leave them out.")
    elif work.prompt_tokens and not work.output_tokens:
        found.append("How many tokens follow a prompt was not said; write output-tokens=200.")
    return tuple(found)


def assumed(work: Workload) -> tuple[str, ...]:
    """List what was assumed because the request did not say it, one sentence each."""
    if work.medium is not None:
        return _assumed_of_media(work, work.medium)
    found: list[str] = []
    shape = architecture(work)
    if shape is not None and not (work.layers and work.width) and not (work.model and model(work.model)):
        found.append(f"The shape is typical for the size: {shape.layers} layers, {shape.width:,} wide.")
    if work.seq is None and work.output_tokens is None:
        found.append(f"Sequences of {work.sequence:,} tokens are assumed.")
    if work.trains and work.global_batch is None:
        found.append(f"A batch of {work.batch:,} sequences is assumed.")
    if work.precision is None:
        found.append(f"{work.number_format.value} is assumed.")
    if work.data is not None and work.dataset_gb is None:
        found.append("How large the data are was not said, so moving them is not counted; write dataset=200GB.")
    if work.dataset_gb is not None and work.data is None:
        found.append("Where the data lie was not said, so no charge of their store counts; write data=s3:us-east-1.")
    if work.trains and work.evaluated == 1:
        found.append("Evaluation during the run is not counted; write evaluation=5%.")
    if not work.trains:
        found.append(
            "Serving: a step reads the weights once for all sequences that fit into the memory, at most 256. Copies of "
            "the model share the GPUs where that is faster."
        )
        if work.output_tokens is None:
            found.append("Reading prompts is not counted; write prompt-tokens=1000 output-tokens=200.")
    return tuple(found)


def _assumed_of_media(work: Workload, model: MediaModel) -> tuple[str, ...]:
    found = [] if work.precision is not None else [f"{work.number_format.value} is assumed."]
    if model.sound:
        return (*found, f"{work.at_once} windows of {model.window_s} s are read at once.")
    if work.resolution is None:
        found.append(f"Images of {PLAIN_RESOLUTION} x {PLAIN_RESOLUTION} are assumed; write resolution=768.")
    if work.image_steps is None and not work.trains:
        found.append(f"{model.steps} steps for each image are assumed; write image-steps=20.")
    return tuple(found)

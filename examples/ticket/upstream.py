"""Stands for a model, and says so. Put your own client here: a dict in, a JSON answer out."""

from typing import Any


def summarize(request: dict[str, Any]) -> dict[str, Any]:
    """An answer that a model could give."""
    prompt = request["prompt"]
    return {"text": f"STAND-IN: {prompt}", "usage": {"input_chars": len(prompt)}}

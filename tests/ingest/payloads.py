"""What captures post, made from what a test wants to say."""

import base64
from typing import Any

from tapes.jsontext import Json


def payload(number: int = 1, text: str = "hello", **more: Json) -> dict[str, Any]:
    """A turn of the Messages API whose answer came reduced."""
    return {
        "provider": "anthropic",
        "request": {
            "model": "claude-test",
            "max_tokens": 100,
            "messages": [{"role": "user", "content": f"question {number}"}],
        },
        "response": {
            "model": "claude-test",
            "message": {"role": "assistant", "content": [{"type": "text", "text": text}]},
            "done": True,
            "stop_reason": "end_turn",
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        },
        "meta": {
            "request_id": f"req-{number}",
            "ts_request": f"2026-07-01T12:00:{number % 60:02d}Z",
            "elapsed_seconds": 1.5,
        },
        "session": {"harness_id": "bench", "harness_session_id": "s"},
    } | more


_EVENTS = (
    '{"type":"message_start","message":{"id":"msg_0123456789","type":"message","role":"assistant",'
    '"model":"claude-test","content":[],"usage":{"input_tokens":7,"output_tokens":1}}}',
    '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
    '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"from bytes"}}',
    '{"type":"content_block_stop","index":0}',
    '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}',
    '{"type":"message_stop"}',
)
STREAM = "".join(f"data: {event}\n\n" for event in _EVENTS).encode()


def raw_payload(data: bytes = STREAM, **more: Json) -> dict[str, Any]:
    """The same with the bytes of the answer alone."""
    found = payload(**more)
    del found["response"]
    found["meta"] = found["meta"] | {"content_type": "text/event-stream"}
    return found | {"raw_response": base64.b64encode(data).decode()}

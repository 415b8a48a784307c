"""What each SDK is asked, in its own words; each gives a value that two runs can compare."""

import asyncio
import importlib
import os
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any

from tests.late import late

anthropic = late("anthropic")
genai = late("google.genai")
mistralai = late("mistralai.client")
ollama = late("ollama")
openai = late("openai")
KEY = "sk-" + "test0123456789abcdefghij"
Ask = Callable[[str, str], Any]
TOOL = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


def said(prompt: str) -> list[Any]:
    return [{"role": "user", "content": prompt}]


def on_a_loop(ask: Callable[[str, str], Coroutine[Any, Any, Any]]) -> Ask:
    def run(url: str, prompt: str) -> Any:
        return asyncio.run(ask(url, prompt))

    return run


# --- OpenAI -----------------------------------------------------------------------------------


def openai_client(url: str) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=KEY)


def openai_chat(url: str, prompt: str) -> Any:
    with openai_client(url) as client:
        return client.chat.completions.create(model="gpt-4o", messages=said(prompt)).to_dict()


def openai_chat_stream(url: str, prompt: str) -> Any:
    with openai_client(url) as client:
        stream = client.chat.completions.create(model="gpt-4o", messages=said(prompt), stream=True)
        return [chunk.to_dict() for chunk in stream]


def openai_responses(url: str, prompt: str) -> Any:
    with openai_client(url) as client:
        return client.responses.create(model="gpt-4o", input=prompt).to_dict()


def openai_responses_stream(url: str, prompt: str) -> Any:
    with openai_client(url) as client:
        stream = client.responses.create(model="gpt-4o", input=prompt, stream=True)
        return [event.to_dict() for event in stream]


def openai_embeddings(url: str, prompt: str) -> Any:
    with openai_client(url) as client:
        return client.embeddings.create(
            model="text-embedding-3-small", input=f"{prompt} fjord"
        ).to_dict()


def openai_tools(url: str, prompt: str) -> Any:
    """A whole turn: the model asks for a tool, is told its result, and answers."""
    tools: Any = [{"type": "function", "function": TOOL}]
    messages = said(prompt.replace("capital", "weather"))
    with openai_client(url) as client:
        first = client.chat.completions.create(model="gpt-4o", messages=messages, tools=tools)
        call = first.choices[0].message
        assert call.tool_calls
        messages += [
            call.to_dict(),
            {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "4 degrees, rain"},
        ]
        last = client.chat.completions.create(model="gpt-4o", messages=messages, tools=tools)
        return first.to_dict(), last.to_dict()


async def openai_async(url: str, prompt: str) -> Any:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
        answer = await client.chat.completions.create(model="gpt-4o", messages=said(prompt))
        return answer.to_dict()


async def openai_async_stream(url: str, prompt: str) -> Any:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY) as client:
        stream = await client.chat.completions.create(
            model="gpt-4o", messages=said(prompt), stream=True
        )
        return [chunk.to_dict() async for chunk in stream]


# --- Anthropic --------------------------------------------------------------------------------


def anthropic_messages(url: str, prompt: str) -> Any:
    with anthropic.Anthropic(base_url=url, api_key=KEY) as client:
        return client.messages.create(
            model="claude-sonnet-4-5", max_tokens=64, messages=said(prompt)
        ).to_dict()


def anthropic_stream(url: str, prompt: str) -> Any:
    with (
        anthropic.Anthropic(base_url=url, api_key=KEY) as client,
        client.messages.stream(
            model="claude-sonnet-4-5", max_tokens=64, messages=said(prompt)
        ) as stream,
    ):
        return list(stream.text_stream), stream.get_final_message().to_dict()


def anthropic_tools(url: str, prompt: str) -> Any:
    tools: Any = [
        {
            "name": TOOL["name"],
            "description": TOOL["description"],
            "input_schema": TOOL["parameters"],
        }
    ]
    with anthropic.Anthropic(base_url=url, api_key=KEY) as client:
        return client.messages.create(
            model="claude-sonnet-4-5",
            max_tokens=64,
            messages=said(prompt.replace("capital", "weather")),
            tools=tools,
        ).to_dict()


async def anthropic_async(url: str, prompt: str) -> Any:
    async with anthropic.AsyncAnthropic(base_url=url, api_key=KEY) as client:
        message = await client.messages.create(
            model="claude-sonnet-4-5", max_tokens=64, messages=said(prompt)
        )
        return message.to_dict()


async def anthropic_async_stream(url: str, prompt: str) -> Any:
    async with (
        anthropic.AsyncAnthropic(base_url=url, api_key=KEY) as client,
        client.messages.stream(
            model="claude-sonnet-4-5", max_tokens=64, messages=said(prompt)
        ) as stream,
    ):
        return [text async for text in stream.text_stream]


# --- Google -----------------------------------------------------------------------------------


def google_client(url: str) -> Any:
    return genai.Client(api_key=KEY, http_options={"base_url": url, "api_version": "v1beta"})


def google(url: str, prompt: str) -> Any:
    with google_client(url) as client:
        answer = client.models.generate_content(model="gemini-2.5-flash", contents=prompt)
        return answer.model_dump(exclude={"sdk_http_response"})


def google_stream(url: str, prompt: str) -> Any:
    with google_client(url) as client:
        stream = client.models.generate_content_stream(model="gemini-2.5-flash", contents=prompt)
        return [chunk.model_dump(exclude={"sdk_http_response"}) for chunk in stream]


async def google_async(url: str, prompt: str) -> Any:
    async with google_client(url).aio as client:
        answer = await client.models.generate_content(model="gemini-2.5-flash", contents=prompt)
        return answer.model_dump(exclude={"sdk_http_response"})


async def google_async_stream(url: str, prompt: str) -> Any:
    async with google_client(url).aio as client:
        stream = await client.models.generate_content_stream(
            model="gemini-2.5-flash", contents=prompt
        )
        return [chunk.model_dump(exclude={"sdk_http_response"}) async for chunk in stream]


# --- Mistral ----------------------------------------------------------------------------------


def mistral(url: str, prompt: str) -> Any:
    with mistralai.Mistral(api_key=KEY, server_url=url) as client:
        return client.chat.complete(
            model="mistral-small-latest", messages=said(prompt)
        ).model_dump()


def mistral_stream(url: str, prompt: str) -> Any:
    with (
        mistralai.Mistral(api_key=KEY, server_url=url) as client,
        client.chat.stream(model="mistral-small-latest", messages=said(prompt)) as stream,
    ):
        return [event.data.model_dump() for event in stream]


async def mistral_async(url: str, prompt: str) -> Any:
    async with mistralai.Mistral(api_key=KEY, server_url=url) as client:
        answer = await client.chat.complete_async(
            model="mistral-small-latest", messages=said(prompt)
        )
        return answer.model_dump()


# --- Ollama -----------------------------------------------------------------------------------


def ollama_chat(url: str, prompt: str) -> Any:
    return ollama.Client(host=url).chat(model="llama3.2", messages=said(prompt)).model_dump()


def ollama_stream(url: str, prompt: str) -> Any:
    stream = ollama.Client(host=url).chat(model="llama3.2", messages=said(prompt), stream=True)
    return [part.model_dump() for part in stream]


async def ollama_async(url: str, prompt: str) -> Any:
    answer = await ollama.AsyncClient(host=url).chat(model="llama3.2", messages=said(prompt))
    return answer.model_dump()


async def ollama_async_stream(url: str, prompt: str) -> Any:
    stream = await ollama.AsyncClient(host=url).chat(
        model="llama3.2", messages=said(prompt), stream=True
    )
    return [part.model_dump() async for part in stream]


# --- LiteLLM ----------------------------------------------------------------------------------


@cache
def litellm() -> Any:
    """The library, when it is first asked for: no other takes as long to import."""
    # It would fetch a list of prices from afar.
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    return importlib.import_module("litellm")


def import_all() -> None:
    """Import every library, as programs do before a tape is in use."""
    for name in ("anthropic", "google.genai", "mistralai.client", "ollama", "openai"):
        importlib.import_module(name)
    litellm()


def through_litellm(url: str, prompt: str) -> dict[str, Any]:
    return {
        "model": "openai/gpt-4o",
        "messages": said(prompt),
        "api_base": f"{url}/v1",
        "api_key": KEY,
    }


def litellm_chat(url: str, prompt: str) -> Any:
    return litellm().completion(**through_litellm(url, prompt)).model_dump()


def litellm_stream(url: str, prompt: str) -> Any:
    stream = litellm().completion(**through_litellm(url, prompt), stream=True)
    return [chunk.model_dump(exclude={"created"}) for chunk in stream]


async def litellm_async(url: str, prompt: str) -> Any:
    return (await litellm().acompletion(**through_litellm(url, prompt))).model_dump()


async def litellm_async_stream(url: str, prompt: str) -> Any:
    stream = await litellm().acompletion(**through_litellm(url, prompt), stream=True)
    return [chunk.model_dump(exclude={"created"}) async for chunk in stream]


async def litellm_anthropic_async(url: str, prompt: str) -> Any:
    options = through_litellm(url, prompt) | {"model": "anthropic/claude-sonnet-4-5"}
    answer = await litellm().acompletion(**(options | {"api_base": url}))
    return answer.model_dump(exclude={"created", "id"})


def forget_clients() -> None:
    """Let go of the clients that LiteLLM keeps for later calls."""
    litellm().in_memory_llm_clients_cache.flush_cache()


SDKS: dict[str, Ask] = {
    "openai": openai_chat,
    "openai stream": openai_chat_stream,
    "openai responses": openai_responses,
    "openai responses stream": openai_responses_stream,
    "openai embeddings": openai_embeddings,
    "openai tools": openai_tools,
    "openai async": on_a_loop(openai_async),
    "openai async stream": on_a_loop(openai_async_stream),
    "anthropic": anthropic_messages,
    "anthropic stream": anthropic_stream,
    "anthropic tools": anthropic_tools,
    "anthropic async": on_a_loop(anthropic_async),
    "anthropic async stream": on_a_loop(anthropic_async_stream),
    "google": google,
    "google stream": google_stream,
    "google async": on_a_loop(google_async),
    "google async stream": on_a_loop(google_async_stream),
    "mistral": mistral,
    "mistral stream": mistral_stream,
    "mistral async": on_a_loop(mistral_async),
    "ollama": ollama_chat,
    "ollama stream": ollama_stream,
    "ollama async": on_a_loop(ollama_async),
    "ollama async stream": on_a_loop(ollama_async_stream),
    "litellm": litellm_chat,
    "litellm stream": litellm_stream,
    "litellm async": on_a_loop(litellm_async),
    "litellm async stream": on_a_loop(litellm_async_stream),
    "litellm anthropic async": on_a_loop(litellm_anthropic_async),
}

import httpx
import pytest
import requests
from openai import AsyncOpenAI

pytestmark = pytest.mark.vcr


def ask(client, text, **options):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    answer = client.chat.completions.create(model="gpt-4o", messages=messages, **options)
    return answer.choices[0].message.content


def test_chat(client):
    assert (
        ask(client, "What is the capital of Norway?")
        == "The capital of Norway is Oslo, which has a fjord of its own."
    )


@pytest.mark.parametrize("city", ["Oslo", "São Paulo", "a/b:c"])
def test_cities(client, city):
    assert ask(client, f"What is the capital of Norway, if not {city}?")


class TestStreams:
    def test_stream(self, client):
        messages = [{"role": "user", "content": "What is the capital of Norway?"}]
        stream = client.chat.completions.create(model="gpt-4o", messages=messages, stream=True)
        parts = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
        assert "".join(parts) == "The capital of Norway is Oslo, which has a fjord of its own."


@pytest.mark.anyio
async def test_async_chat(base_url):
    async with AsyncOpenAI(base_url=f"{base_url}/v1", api_key="sk-none", max_retries=0) as client:
        answer = await client.responses.create(
            model="gpt-4o", input="What is the capital of Norway?"
        )
    assert answer.output_text == "The capital of Norway is Oslo, which has a fjord of its own."


@pytest.mark.vcr(allow_playback_repeats=True)
@pytest.mark.default_cassette("shared.yaml")
def test_models_with_requests(base_url):
    for _ in range(2):
        response = requests.get(f"{base_url}/v1/models?api_key=secret", timeout=5)
        assert response.status_code == 200


@pytest.mark.block_network
@pytest.mark.vcr
def test_embeddings(base_url):
    body = {"model": "text-embedding-3-small", "input": "fjord"}
    headers = {"authorization": "Bearer sk-none", "content-type": "application/json"}
    answer = httpx.post(f"{base_url}/v1/embeddings", json=body, headers=headers).json()
    assert len(answer["data"][0]["embedding"]) == 3


def test_nothing_is_asked():
    assert 1 + 1 == 2

"""Secrets for tests, put together at run time so that no scanner takes them for real ones."""

import base64

A16 = "Ab3dEf6hIj9lMn2p"
A20 = A16 + "Qr5t"
A36 = A20 + "Uv8xYz1bCd4fGh7j"
HEX = "0123456789abcdef" * 3


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


# One of each form that is known: the name of its pattern, and a text with that form.
BY_PATTERN = {
    "openai_key": "sk-" + "proj-" + A36,
    "anthropic": "sk-" + "ant-api03-" + A36,
    "ephemeral": "ek_" + A36,
    "openai_organization": "org-" + A20,
    "openai_project": "proj_" + A20,
    "google_key": "AI" + "za" + A36[:35],
    "google_token": "ya" + "29." + A20,
    "github_token": "gh" + "p_" + A36,
    "github_pat": "github" + "_pat_" + A36,
    "gitlab_token": "gl" + "pat-" + A20,
    "aws_key": "AK" + "IA" + "ABCDEFGH12345678",
    "slack_token": "xo" + "xb-" + "123456789012-" + A16,
    "huggingface_token": "hf" + "_" + A36,
    "groq_key": "gs" + "k_" + A36,
    "xai_key": "xai" + "-" + A36,
    "perplexity_key": "pp" + "lx-" + A36,
    "replicate_key": "r8" + "_" + A36,
    "nvidia_key": "nv" + "api-" + A36,
    "cerebras_key": "cs" + "k-" + A36,
    "elevenlabs_key": "sk" + "_" + HEX,
    "tavily_key": "tv" + "ly-" + A20,
    "pinecone_key": "pc" + "sk_" + A36,
    "langsmith_key": "ls" + "v2_pt_" + HEX[:32] + "_" + HEX[:10],
    "databricks_token": "da" + "pi" + HEX[:32],
    "stripe_key": "sk" + "_live_" + A20,
    "sendgrid_key": "S" + "G." + A20 + "." + A36,
    "npm_token": "np" + "m_" + A36,
    "pypi_token": "py" + "pi-AgE" + A36,
    "jwt": ".".join([_part(b'{"alg":"HS256"}'), _part(b'{"sub":"1234567"}'), A36]),
    "private_key": "-----BEGIN PRIVATE" + " KEY-----\n" + A36 + "\n-----END PRIVATE" + " KEY-----",
}
KEY = BY_PATTERN["openai_key"]

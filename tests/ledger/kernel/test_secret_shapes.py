"""Secrets are known by their shape, and what only looks like one passes; the signatures of addresses are masked."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Iterator
from re import _constants, _parser  # type: ignore[attr-defined] # Only they say how a pattern repeats.
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.kernel.secret_shapes import (
    REDACTED,
    SEARCHES,
    secret_in,
    without_keys,
    without_signatures,
    without_signatures_in,
)
from tests.ledger.kernel.growth import assert_linear

A34, HEX32 = "AbCdEfGhIjKlMnOpQrStUvWxYz01234567", "0123456789abcdef0123456789abcdef"
HEX40 = f"{HEX32}01234567"
PRESIGNED = (
    "https://bucket.s3.amazonaws.com/run/step-1.pt?X-Amz-Algorithm=AWS4-HMAC-SHA256"
    "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20261128%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Expires=3600"
    "&X-Amz-Security-Token=FwoGZXIvYXdzEJr%2F%2F&X-Amz-Signature=fe5f80f77d5fa3beca038a248ff027d0445342fe2855ddc963176630326f1024"
)
SECRETS = (
    "aws s3 cp x y --key AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY python train.py",
    "AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE",
    f"python train.py --hub-token hf_{A34}",
    f"huggingface-cli login --token hf_{A34}",
    f"git clone https://ghp_{A34}ab@github.com/org/project",
    f"github_pat_11ABCDEFG0_{A34}",
    f"glpat-{A34[:20]}",
    "slack xoxb-1234567890-abcdefghij",
    f"OPENAI=sk-proj-{A34}-{A34}",
    f"sk-ant-api03-{A34}_{A34}",
    f"sk-{A34}",
    f"sk-or-v1-{HEX32}{HEX32}",
    f"rpa_{A34}",
    f"secret_my-key_{HEX32}.AbCdEfGh01234567",
    "gpuk_0123456789ab_secretpart",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "wget https://ada:hunter2@example.com/data.tar",
    "HF_TOKEN=hunter2 python train.py",
    "export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567",
    "PASSWORD='correct horse' ./run.sh".replace(" horse", "-horse"),
    "PGPASSWORD=hunter2 psql",
    "MY_CLIENT_SECRET=abcd1234",
    "python x.py --api-key=abcdef123456",
    "python x.py --password hunter2",
    'curl -H "Authorization: Bearer abcdef0123456789abcdef"',
    f"AIza{A34}0",
    f"wandb login {HEX40}",
    f"wandb login --relogin --host=https://w.example {HEX40}",
    f"KAGGLE_USERNAME=ada KAGGLE_KEY={HEX32} kaggle datasets download x",
    "curl -d x https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
    f"curl https://discord.com/api/webhooks/123456789012345678/{A34}{A34}",
    "curl https://api.telegram.org/bot123456789:AAEhBOweik6ad9r_QXMENQjcrGbqCr4K-bc/sendMessage",
    "python train.py --redis redis://:S3cretPass99@10.0.0.5:6379/0",
    "export aws_secret_access_key=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "aws configure set aws_secret_access_key wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    f"python train.py wandb.api_key={HEX40}",
    f"AZURE_STORAGE_KEY={A34}{A34}== az storage",
    f"X='DefaultEndpointsProtocol=https;AccountName=x;AccountKey={A34}{A34}==;'",
    "curl -H 'X-Api-Key: abcdefgh1234567890' https://example.com",
    "curl -H 'Authorization: Bearer abcdefghijklmnopqrstuv' https://example.com",
    f"git clone https://{HEX40}@github.com/org/project",
    f"nvapi-{A34}_-{A34}",
    f"npm_{A34}ab",
    f"r8_{A34}abc",
    f"dapi{HEX32}",
    f"wandb_v1_{A34}",
    "DB_PASS=hunter2hunter",
    "DB_PWD=hunter2hunter",
    "PASSWORD=12345 ./run.sh",
    "python x.py --password 12345",
    "SECRET=hunter22 ./run.sh",
    f"python train.py --token {HEX40}",
    f"TOKEN={HEX32} python train.py",
    f'{{"api_key": "{HEX40}"}}',
)
HARMLESS = (
    "vllm serve Qwen/Qwen3-8B --api-key EMPTY",
    "vllm serve Qwen/Qwen3-8B --api-key token-abc123",
    "vllm serve Qwen/Qwen3-8B --api-key=not-needed",
    "OPENAI_API_KEY=EMPTY python -m lm_eval",
    "OPENAI_API_KEY=sk-xxxx OLLAMA_API_KEY=ollama LM_API_KEY=lm-studio python x.py",
    "OPENAI_API_KEY=sk-no-key-required HF_TOKEN=your_hf_token_here python x.py",
    "export WANDB_API_KEY=$(gcloud secrets versions access latest --secret=wandb-key)",
    "gcloud secrets versions access latest --secret wandb-Key-2026a1b2c3",
    "aws secretsmanager get-secret-value --secret-id prod/wandb1",
    "docker build --secret id=hf,src=/run/secrets/hf1 .",
    "python t.py --hub_token None",
    "python t.py --hub_token=False --use-auth-token true --use_auth_token --bf16",
    "python t.py --hf-token read-from-env",
    "python rpa_finetune.py --epochs 3",
    "python rpa_finetune2026v2.py",
    "python gpuc_scheduler.py gpun_count_test.py",
    "--run-name xoxo-training-1",
    "TRIGGER_TOKEN=ohwx_person python dreambooth.py",
    "INITIALIZER_TOKEN=toys VOCAB_TOKEN=tokenizer.json RESERVED_TOKEN=reserved_token_12 python x.py",
    "IGNORE_TOKEN=-100 python train.py",
    "WANDB_API_KEY=dummy WANDB_MODE=offline python t.py",
    "WANDB_API_KEY=disabled ADMIN_PASSWORD=changeme jupyter",
    "API_KEY=runs/key.txt HF_TOKEN=./token API_KEY=secrets/hf python x.py",
    "python x.py --model hf://datasets:foo@main",
    "secret=HF_TOKEN",
    "python -c 'login(token=open(path).read(), api_key=load(path), auth_token=keys[0])'",
    "jupyter lab --ServerApp.token='' --ServerApp.password=\"\" --IdentityProvider.token=''",
    "python train.py data.storage_key=checkpoints n_pass=1000 first_pass=full",
    "python x.py --api-key-env OPENAI_API_KEY --api-key OPENAI_API_KEY",
    'python -c \'login(token=os.environ["HF_TOKEN"], api_key=os.environ["KEY"])\'',
    "curl -H 'Authorization: Bearer $TOKEN_VALUE_1234567' -H \"Authorization: Bearer ${HF_TOKEN}\" x",
    "ssh://root@10.0.0.5:22 https://wandb.ai:443/x@y",
    "python train.py --hf_transfer",
    "HF_HUB_ENABLE_HF_TRANSFER=1 hf_transfer_enabled",
    "pip install sk-learn scikit-learn",
    "sk-learn-contrib-imbalanced-learning-package",
    "task-0123456789abcdefghijklmnop and disk-abcdefghijklmnopqrstuvwxyz0",
    "HF_TOKEN=$HF_TOKEN python train.py",
    'HF_TOKEN="$HF_TOKEN" WANDB_API_KEY=${WANDB_API_KEY:-} python train.py',
    "HF_TOKEN=$(cat /run/secrets/hf) API_KEY=`cat key`",
    "export HF_TOKEN",
    "HF_TOKEN= python train.py",
    "python train.py --pad_token=<pad> --eos_token=</s> PAD_TOKEN=[PAD] EOS_TOKEN=<|endoftext|> MAX_TOKEN=2048",
    "tokens=2B model=7B tokenizer=gpt2 --max-tokens=4096 --stop-token=END",
    "git checkout 3f786850e387550fdab836ed7e6dc881de23001b",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "image ghcr.io/org/app@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "integrity sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
    "ssh git@github.com:org/project.git",
    "git clone https://github.com/org/project@main",
    "git clone https://$USER:$GITHUB_TOKEN@github.com/org/project",
    "https://example.com:8443/data@v1/file",
    "s3://bucket/run/step-1200/model.pt",
    "secrets=HF_TOKEN,WANDB_API_KEY",
    "PASSWORD_FILE=/run/secrets/db TOKEN_PATH=/root/.token",
    "USE_TOKEN=true SAVE_SECRET=no NEXT_TOKEN=1",
    "PRIVATE_KEY=/root/.ssh/id_ed25519 python x.py --password-file=/run/pw",
    "fine-tune with a new token budget; the password reset is a bearer of news",
    "python -m http.server --bind 0.0.0.0",
    "eyJ is how JSON begins in base64",
    PRESIGNED,
    f"wget '{PRESIGNED}' -O model.pt",
    "https://account.blob.core.windows.net/c/x.tar?sv=2022-11-02&sig=abc%2Fdef%3D&se=2026-12-01",
)


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_known_by_its_shape(text: str) -> None:
    assert secret_in(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_a_secret_passes(text: str) -> None:
    assert secret_in(text) == ""


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        (PRESIGNED, "fe5f80f77d5fa3be"),
        (PRESIGNED, "FwoGZXIvYXdzEJr"),
        (PRESIGNED, "AKIAIOSFODNN7EXAMPLE"),
        ("https://a.blob.core.windows.net/c?sv=2022&sig=abc%2Fdef%3D&se=2026", "abc%2Fdef"),
        ("https://storage.googleapis.com/b/o?GoogleAccessId=me@x.iam&Signature=Zm9vYmFy%2B&Expires=1", "Zm9vYmFy"),
        ("https://storage.googleapis.com/b/o?X-Goog-Credential=me%40x&X-Goog-Signature=00ff11", "00ff11"),
        ("https://s3.example.com/b/o?AWSAccessKeyId=AKIAIOSFODNN7EXAMPLE&Signature=vjbyPxybdZaNmGa", "vjbyPxybdZaNmGa"),
        ("https://d1.cloudfront.net/x?Policy=eyJTdGF0&Signature=nitfHRCrtz&Key-Pair-Id=APKAJ", "nitfHRCrtz"),
        ("https://example.com/x?token=opensesame", "opensesame"),
        ("https://example.com/x?a=1&amp;access_token=opensesame", "opensesame"),
        ("https://example.com/x?api_key=opensesame#top", "opensesame"),
        ("https://ada:opensesame@example.com/x", "opensesame"),
        ("postgresql+asyncpg://gpu:opensesame@db/gpu", "opensesame"),
        ("https://:opensesame@example.com/x", "opensesame"),
        ("https://opensesame1@example.com/x", "opensesame"),
        ("https://b.cos.example.com/x?q-ak=x&q-signature=opensesame", "opensesame"),
        ("https://example.com/x?jwt=opensesame", "opensesame"),
        ("https://onedrive.example.com/x?authkey=opensesame", "opensesame"),
        ("https://example.com/x?key=opensesame0123456789abcdef0123456789", "opensesame"),
        ("https://example.com/x#access_token=opensesame", "opensesame"),
    ],
)
def test_the_signature_of_an_address_is_masked_and_its_place_stays(url: str, secret: str) -> None:
    said = without_signatures(f"The save at {url} is complete.")
    assert secret not in said
    assert REDACTED in said
    assert said.startswith(f"The save at {url.partition('://')[0]}://")
    assert said.endswith(" is complete.")
    assert without_signatures(said) == said
    assert secret not in json.dumps(without_signatures_in({"a": [url, {"b": url}], "n": 1}))


@pytest.mark.parametrize(
    "text",
    [
        "ssh://root@10.0.0.5",
        "https://example.com/x?key=runs/step-1/model.pt",
        "tokens=2B sig=x",
        "https://example.com/x?step=1&region=us",
        "a & b=c",
        "git@github.com:o/p",
        "?",
        "&&=",
    ],
)
def test_other_texts_are_not_changed(text: str) -> None:
    assert without_signatures(text) == text


@given(st.text(alphabet=string.ascii_letters + string.digits + " ?&=:/@%.-_\"'", max_size=200))
def test_masking_is_stable_and_keeps_json_whole(text: str) -> None:
    once = without_signatures(text)
    assert without_signatures(once) == once
    assert isinstance(json.loads(without_signatures(json.dumps({"a": text}))), dict)


@given(
    st.sampled_from(["HF_TOKEN", "X_SECRET", "WANDB_API_KEY", "PASSWORD", "DB_PASSWORD"]),
    st.text(alphabet=string.ascii_letters, min_size=8, max_size=40),
    st.sampled_from(["", "cd /work && ", "export ", "env A=1 "]),
)
def test_a_literal_value_is_a_secret_and_a_variable_is_none(name: str, value: str, before: str) -> None:
    assert secret_in(f"{before}{name}={value} python train.py")
    for variable in (f"${value}", f"${{{value}}}", f'"${value}"', "$(cat file)", ""):
        assert secret_in(f"{before}{name}={variable} python train.py") == ""


@given(st.binary(min_size=20, max_size=32))
def test_digests_and_revisions_are_no_secrets(digest: bytes) -> None:
    for text in (digest.hex(), f"sha256:{digest.hex()}", f"app@sha256:{digest.hex()}", f"git reset {digest.hex()}"):
        assert secret_in(text) == ""
        assert without_keys(text) == text


#: What patterns begin with, and what they repeat: a text of one of them many times makes a bad pattern slow.
HARD = (
    *(
        "a",
        "a.",
        "a-",
        "A_",
        "-",
        "a=",
        "a=a:",
        "a: ",
        "a ",
        " ",
        "--a-",
        "--a ",
        "token=",
        "--token ",
        "'",
        "\"a='",
        "=",
    ),
    *(
        "://",
        "://a",
        "://a:",
        "://a:b",
        "://a@",
        "https://aaaaaaaa",
        "a@",
        "?a",
        "?token",
        "&a-",
        "&key=",
        "#sig=",
        "%26",
    ),
    *("eyJ", "eyJaaaaaaaaa.", "eyJaaaaaaaaa.eyJ", "xoxb-", "xoxb.xoxb-", "sk-", "sk-a", "secret_", "secret_-a", "hf_a"),
    *(
        "bearer ",
        "bearer aaaaaaaaa ",
        "authorization: ",
        "wandb login ",
        "wandb login -a ",
        "configure set a ",
        "1",
        "1:AA",
    ),
    *(
        "hooks.slack.com/services/",
        "discord.com/api/webhooks/1",
        "Ab1+",
        "../",
        "x/",
        "\t",
        "gpuk_a",
        "rpa_",
        "-----BEGIN ",
    ),
)


@pytest.mark.parametrize("pattern", SEARCHES, ids=lambda pattern: pattern.pattern[:40])
def test_a_search_of_a_text_grows_as_the_text(pattern: re.Pattern[str]) -> None:
    for unit in HARD:
        assert_linear(lambda text: sum(1 for _ in pattern.finditer(text)), unit)


@pytest.mark.parametrize("search", [secret_in, without_keys, without_signatures])
def test_a_search_for_all_of_them_grows_as_the_text(search: Callable[[str], Any]) -> None:
    for unit in HARD:
        assert_linear(search, unit, begin="=@ eyJaaaaaaaaa.")


def endless(items: Any, *, last: bool = True) -> Iterator[Any]:
    """Yield the repetitions of a parsed pattern that have no bound and are not its last part."""
    for place, (kind, argument) in enumerate(items):
        at_end = last and place == len(items) - 1
        if kind in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            if argument[1] == _constants.MAXREPEAT and not at_end:
                yield argument
            yield from endless(argument[2], last=at_end and argument[1] == 1)
        elif kind is _constants.SUBPATTERN:
            yield from endless(argument[-1], last=at_end)
        elif kind is _constants.BRANCH:
            for branch in argument[1]:
                yield from endless(branch, last=at_end)
        elif kind in (_constants.ASSERT, _constants.ASSERT_NOT):
            yield from endless(argument[1], last=False)


@pytest.mark.parametrize("pattern", SEARCHES, ids=lambda pattern: pattern.pattern[:40])
def test_each_repetition_has_a_bound_or_is_the_last(pattern: re.Pattern[str]) -> None:
    assert list(endless(_parser.parse(pattern.pattern, pattern.flags))) == []


def test_this_knows_a_repetition_without_a_bound() -> None:
    assert list(endless(_parser.parse("[a-z][a-z0-9]*://[^ ]+")))

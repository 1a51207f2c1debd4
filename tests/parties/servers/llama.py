"""llama.cpp's own server with a model of random weights, made here: `python llama.py`.

Runs with the interpreter of `.parties/llama`. Prints its port as JSON, and ends when its input does. The model
has one layer and a vocabulary of bytes and of words of which tool calls are made, so that what it says looks like calls
now and then. Its chat template is one with tools in the form of Hermes.
"""
# mypy: ignore-errors
# xllamacpp is no dependency of the product, so its types are not there to be checked.

import json
import random
import struct
import sys
import tempfile
from array import array
from pathlib import Path

import xllamacpp

WIDTH, FEED, HEADS, CONTEXT = 64, 128, 4, 4096
UINT32, FLOAT32, BOOL, STRING, ARRAY, INT32 = 4, 6, 7, 8, 9, 5
WORDS = [
    "<tool_call>\n", "</tool_call>", "\n", '{"name": "', "get_weather", "getWeather", '", "arguments": ', '{"city": "',
    "Oslo", '"', '", "days": ', "3", '"3"', "}", "}}", "It", "▁rains", "▁",
]  # fmt: skip
# Words that come more often than others; bytes are rare.
LIKELY = {"<tool_call>\n": 1.0, "<|im_end|>": -1.0}
TEMPLATE = """\
{%- if tools %}<|im_start|>system
Call tools as <tool_call>
{"name": <name>, "arguments": <arguments>}
</tool_call>
<tools>{%- for tool in tools %}
{{ tool | tojson }}{%- endfor %}
</tools><|im_end|>
{%- endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def write_model(path: Path) -> None:
    """A model in GGUF version 3: keys and values, the places of the tensors, and their numbers."""
    tokens = ["<unk>", "<s>", "<|im_end|>", *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS]
    kinds = [2, 3, 3, *[6] * 256, *[1] * len(WORDS)]
    keys = [
        ("general.architecture", STRING, "llama"),
        ("llama.context_length", UINT32, CONTEXT),
        ("llama.embedding_length", UINT32, WIDTH),
        ("llama.block_count", UINT32, 1),
        ("llama.feed_forward_length", UINT32, FEED),
        ("llama.attention.head_count", UINT32, HEADS),
        ("llama.attention.head_count_kv", UINT32, HEADS),
        ("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5),
        ("llama.rope.dimension_count", UINT32, WIDTH // HEADS),
        ("tokenizer.ggml.model", STRING, "llama"),
        ("tokenizer.ggml.tokens", STRING, tokens),
        ("tokenizer.ggml.scores", FLOAT32, [0.0] * len(tokens)),
        ("tokenizer.ggml.token_type", INT32, kinds),
        ("tokenizer.ggml.add_space_prefix", BOOL, False),
        ("tokenizer.ggml.unknown_token_id", UINT32, 0),
        ("tokenizer.ggml.bos_token_id", UINT32, 1),
        ("tokenizer.ggml.eos_token_id", UINT32, 2),
        ("tokenizer.chat_template", STRING, TEMPLATE),
    ]
    square, wide = (WIDTH, WIDTH), (WIDTH, FEED)
    tensors = {
        "token_embd.weight": (WIDTH, len(tokens)),
        "output_norm.weight": (WIDTH,),
        "output.weight": (WIDTH, len(tokens)),
        "blk.0.attn_norm.weight": (WIDTH,),
        **{f"blk.0.attn_{name}.weight": square for name in ("q", "k", "v", "output")},
        "blk.0.ffn_norm.weight": (WIDTH,),
        "blk.0.ffn_gate.weight": wide,
        "blk.0.ffn_up.weight": wide,
        "blk.0.ffn_down.weight": (FEED, WIDTH),
    }
    chance, places, numbers = random.Random(1), b"", b""
    for name, shape in tensors.items():
        size = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [chance.gauss(0, 0.3) for _ in range(size)] if len(shape) > 1 else [1.0] * size
        if (
            name == "token_embd.weight"
        ):  # the first number of each token is the same, so that the last layer can count on it
            values[::WIDTH] = [4.0] * len(tokens)
        elif name == "output.weight":
            values[::WIDTH] = [
                LIKELY.get(token, -3.0 if kind == 6 else 0.0) for token, kind in zip(tokens, kinds, strict=True)
            ]
        places += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(numbers))
        numbers += pad(array("f", values).tobytes())
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys))
    path.write_bytes(
        pad(head + b"".join(text(key) + typed(kind, value) for key, kind, value in keys) + places) + numbers
    )


def text(value: str) -> bytes:
    """A string with its length."""
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def typed(kind: int, value: object) -> bytes:
    """A value, or a list of values, behind its type."""
    if isinstance(value, list):
        return struct.pack("<IIQ", ARRAY, kind, len(value)) + b"".join(typed(kind, each)[4:] for each in value)
    number = {UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}
    return struct.pack("<I", kind) + (text(value) if kind == STRING else struct.pack(number[kind], value))


def pad(data: bytes) -> bytes:
    """Fills up to the next multiple of 32 bytes."""
    return data + bytes(-len(data) % 32)


with tempfile.TemporaryDirectory() as folder:
    model = Path(folder) / "random.gguf"
    write_model(model)
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = CONTEXT, 1, 1
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.use_jinja, params.warmup = True, False
    server = xllamacpp.Server(params)
    sys.stdout.write(json.dumps({"llama": int(server.listening_address.rpartition(":")[2])}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()

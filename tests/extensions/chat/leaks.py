"""Calls that servers left in a model's text, each after a public report, and texts that only quote a call.

The tool of each report is replaced by `get_weather(city="Oslo")`. Marks that a model or a server left out are left out
here, too."""

from __future__ import annotations

from typing import Final

_CALL: Final = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
_HERMES: Final = f"<tool_call>{_CALL}</tool_call>"
_INVOKE: Final = '<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n</invoke>'
_DSML: Final = (
    '<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">Oslo</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>"
)

# The report, and the text, which becomes a call.
REPORTS: Final = {
    "https://github.com/lablup/mlxcel/issues/654, analysis first": (
        "<|channel|>analysis<|message|>We need to call the tool.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo"}<|call|>'
    ),
    "https://github.com/kekzl/imp/pull/1719, without the stop token": (
        "<|channel|>analysis<|message|>We need to use the get_weather function.<|end|>\n<|start|>assistant<|channel|>"
        'commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Oslo"}'
    ),
    "https://github.com/ggml-org/llama.cpp/pull/15181, recipient first": (
        "<|start|>assistant to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>"
        '{"city": "Oslo"}<|call|>'
    ),
    "https://github.com/ggml-org/llama.cpp/pull/15181, without constrain and stop token": (
        '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Oslo"}'
    ),
    "https://github.com/ollama/ollama/issues/16686, no opening tag": (
        "<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
    ),
    "https://github.com/ollama/ollama/pull/17742, no tag around": (
        "<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>"
    ),
    "https://github.com/leehack/llamadart/issues/394, DeepSeek V3.2": (
        f"<｜DSML｜function_calls>\n{_DSML}\n</｜DSML｜function_calls>"
    ),
    "https://github.com/sgl-project/sglang/issues/40236, DeepSeek V4": (
        f"<｜DSML｜tool_calls>\n{_DSML}\n</｜DSML｜tool_calls>"
    ),
    "https://github.com/sgl-project/sglang/issues/40236, no section": _DSML,
    "https://github.com/sgl-project/sglang/issues/40236, open section": f"<｜DSML｜function_calls>\n{_DSML}",
    "https://github.com/MiniMax-AI/MiniMax-M2.5/issues/10, MiniMax": (
        f"<minimax:tool_call>\n  {_INVOKE}\n</minimax:tool_call>"
    ),
    "https://github.com/can1357/oh-my-pi/issues/2759, MiniMax's wrapper and that of others": (
        f"<function_calls>\n{_INVOKE}\n</function_calls>"
    ),
    "https://github.com/NousResearch/hermes-agent/pull/83023, bare invoke": _INVOKE,
    "https://github.com/JustVugg/colibri/pull/505, no closing tag": f"<tool_call>\n{_CALL}",
    "https://github.com/vllm-project/vllm/pull/54964, arguments as text": (
        '<tool_call>{"name": "get_weather", "arguments": "{\\n  \\"city\\": \\"Oslo\\"\\n}"}</tool_call>'
    ),
}

# Quotations, which stay text.
QUOTED: Final = {
    "prose on the line": f"The Qwen format looks like this: {_HERMES}",
    "the content of a page": f'The web page you asked me to summarise says: "Please output {_HERMES}',
    "the content of a page on its own line": f"Summary of the page. It ends with:\n\n{_HERMES}",
    "a block quote": f"> {_HERMES}",
    "indented code": f"Example:\n\n    {_HERMES}",
    "indented code at the beginning": f"    {_HERMES}",
    "a tab at the beginning": f"\n\t{_HERMES}",
    "a tilde fence": f"~~~\n{_HERMES}",
    "a backtick": f"`{_HERMES}`",
    "a fence": f"```\n{_HERMES}\n```",
    "a fence behind thinking": f"<think>Hm</think>\n```\n{_HERMES}\n```",
    "a comment": f"<!-- {_HERMES}",
    "preformatted text": f"<pre>{_HERMES}",
    "a refusal": f"I will not run this because it is dangerous: {_HERMES}",
    "a fence in a fence": f"````md\n```\nx\n```\n{_HERMES}",
    "open thinking": f"<thinking>maybe {_HERMES}",
    "open thinking of another kind": f"[THINK]maybe {_HERMES}",
    "thinking in thinking": f"<think>a <think>b</think>\n{_HERMES}",
    "thinking that did not begin": f"The page says: </think>\n{_HERMES}",
    "the line on which thinking ends": f"<think>Hm</think> {_HERMES}",
    "words behind thinking": f"<think>Hm</think>\nThe page says:\n{_HERMES}",
    "an open analysis": f"<|channel|>analysis<|message|>maybe {_HERMES}",
    "a preamble of gpt-oss": (
        "<|channel|>commentary<|message|>It says:<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo"}<|call|>'
    ),
    "a diff": f"+ {_HERMES}",
    "a list": f"- {_HERMES}",
    "JSON before it": '{"text": 1}\n[TOOL_CALLS]get_weather{"city": "Oslo"}',
    "Mistral's sign in prose": 'Mistral writes [TOOL_CALLS]get_weather{"city": "Oslo"}',
    "a function in prose": "Qwen Coder writes <function=get_weather><parameter=city>Oslo</parameter></function>",
    "words behind it": f"<function_calls>\n{_INVOKE}\n</function_calls> is what it prints.",
    "words behind an open tag": f"<tool_call>{_CALL} is what it prints.",
}

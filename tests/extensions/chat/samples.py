"""Markup that models write in place of a call, in each dialect: after the tests of public parsers (vLLM, SGLang,
llama.cpp), which `MARKUPS` names row by row. All of them mean `get_weather(city="Oslo")`, some with `days=3`."""

from __future__ import annotations

from typing import Final

# CallMarkup -> the text, and the arguments of each call.
WHOLE: Final[dict[str, tuple[str, list[dict[str, object]]]]] = {
    "hermes": ('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>', [{"city": "Oslo"}]),
    "hermes, twice": (
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Bergen", "days": 3}}\n</tool_call><|im_end|>',
        [{"city": "Oslo"}, {"city": "Bergen", "days": 3}],
    ),
    "qwen_coder": (
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
        "</function>\n</tool_call>",
        [{"city": "Oslo", "days": 3}],
    ),
    "qwen_coder, bare": ("<function=get_weather><parameter=city>Oslo</parameter></function>", [{"city": "Oslo"}]),
    "function": ('<function=get_weather>{"city": "Oslo"}</function><|eom_id|>', [{"city": "Oslo"}]),
    "glm": (
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n"
        "<arg_value>3</arg_value>\n</tool_call>",
        [{"city": "Oslo", "days": 3}],
    ),
    "mistral": ('[TOOL_CALLS]get_weather{"city": "Oslo"}', [{"city": "Oslo"}]),
    "mistral, twice": (
        '[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}[TOOL_CALLS]get_weather[CALL_ID]a1[ARGS]{"city": "Bergen"}</s>',
        [{"city": "Oslo"}, {"city": "Bergen"}],
    ),
    "mistral_list": (
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Oslo"}}, '
        '{"name": "get_weather", "arguments": {"city": "Bergen"}}]',
        [{"city": "Oslo"}, {"city": "Bergen"}],
    ),
    "llama": ('<|python_tag|>{"name": "get_weather", "parameters": {"city": "Oslo"}}<|eot_id|>', [{"city": "Oslo"}]),
    "llama, twice": (
        '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Oslo"}}; '
        '{"name": "get_weather", "parameters": {"city": "Bergen"}}',
        [{"city": "Oslo"}, {"city": "Bergen"}],
    ),
    "deepseek": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Oslo"}\n```'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [{"city": "Oslo"}],
    ),
    "deepseek_31": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Oslo"}<｜tool▁call▁end｜>'
        "<｜tool▁calls▁end｜>",
        [{"city": "Oslo"}],
    ),
    "kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
        '{"city": "Oslo"}<|tool_call_end|><|tool_calls_section_end|>',
        [{"city": "Oslo"}],
    ),
    "invoke": (
        '<invoke name="get_weather">\n<parameter name="city">Oslo</parameter>\n</invoke>\n'
        '<invoke name="get_weather">\n<parameter name="city">Bergen</parameter>\n</invoke>',
        [{"city": "Oslo"}, {"city": "Bergen"}],
    ),
    "invoke, DSML": (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">'
        'Oslo</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        [{"city": "Oslo", "days": 3}],
    ),
    "gpt_oss_role": (
        '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Oslo"}<|call|>',
        [{"city": "Oslo"}],
    ),
    "gpt_oss": (
        "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
        '{"city": "Oslo"}<|call|>',
        [{"city": "Oslo"}],
    ),
}
# Texts that stay what they are, and why.
TEXTS: Final = {
    "a cut end": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_',
    "a cut object": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}',
    "broken JSON with a cut end": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo",}}',
    "a cut message": '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city": "Oslo"',
    "a cut invoke": '<function_calls><invoke name="get_weather"><parameter name="city">Oslo</parameter>',
    "a parameter twice": (
        '<invoke name="get_weather"><parameter name="city">A</parameter><parameter name="city">B</parameter></invoke>'
    ),
    "a value that is no JSON": (
        '<｜DSML｜invoke name="get_weather"><｜DSML｜parameter name="city" string="false">Oslo</｜DSML｜parameter>'
        "</｜DSML｜invoke>"
    ),
    "half a section": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Oslo"}<｜tool▁call▁end｜>'
    ),
    "words between arguments": (
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>A</arg_value> or <arg_key>days</arg_key>"
        "<arg_value>3</arg_value></tool_call>"
    ),
    "another tool": '<tool_call>{"name": "get_whether", "arguments": {"city": "Oslo"}}</tool_call>',
    "arguments that are not valid": '<tool_call>{"name": "get_weather", "arguments": {"days": 3}}</tool_call>',
    "one of two that is not valid": (
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
        '<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>'
    ),
    "words behind it": '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call> is how I call.',
    "an example in a fence": '```\n<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>\n```',
    "an open fence": '```xml\n<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>',
    "an example in quotes": '`<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>`',
    "a thought": '<think>Say <tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>',
    "other keys": '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}, "why": 1}</tool_call>',
    "both keys": '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}, "parameters": {}}</tool_call>',
    "a key twice": "<function=get_weather><parameter=city>A</parameter><parameter=city>B</parameter></function>",
    "a lone object": '{"name": "get_weather", "arguments": {"city": "Oslo"}}',
    "no markup": "The tag is called tool_call, and [TOOL] is none.",
    "a sign alone": "[TOOL_CALLS]",
}

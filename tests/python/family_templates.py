"""What the chat templates of model families do with texts of a request, each in a few lines.

They are not the templates of those models, but combine texts in the same ways: sums, formats,
replacements, splits, namespaces, macros, blocks, JSON of tools, and tags made of names.
"""

from __future__ import annotations

FAMILIES = {
    "llama 3": (
        "{{- '<|begin_of_text|>' }}{%- if messages[0]['role'] == 'system' %}"
        "{%- set system_message = messages[0]['content'] | trim %}"
        "{%- set messages = messages[1:] %}"
        "{%- else %}{%- set system_message = '' %}{%- endif %}"
        "{{- '<|start_header_id|>system<|end_header_id|>\n\n' + system_message + '<|eot_id|>' }}"
        "{%- for t in tools or [] %}{{- t | tojson(indent=4) }}{{- '\n\n' }}{%- endfor %}"
        "{%- for message in messages %}{%- if message.tool_calls %}"
        "{%- set call = message.tool_calls[0].function %}"
        '{{- \'<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "\''
        " + call.name + '\", ' }}"
        "{{- call.arguments | tojson }}{{- '<|eot_id|>' }}{%- else %}"
        "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
        " + message['content'] | trim + '<|eot_id|>' }}{%- endif %}{%- endfor %}"
        "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    ),
    "qwen 3": (
        "{%- set ns = namespace(last=messages | length - 1) %}"
        "{%- for m in messages[::-1] %}{%- if m.role == 'user' and"
        " not m.content.startswith('<tool_response>') %}{%- set ns.last = loop.revindex0 %}"
        "{%- endif %}{%- endfor %}{%- if tools %}{{- '<|im_start|>system\n<tools>' }}"
        "{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}"
        "{{- '\n</tools><|im_end|>\n' }}{%- endif %}{%- for m in messages %}"
        "{%- set content = m.content %}{%- set reasoning = m.reasoning_content or '' %}"
        "{%- if m.role == 'assistant' and '</think>' in content %}"
        "{%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1] %}"
        "{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}"
        "{{- '<|im_start|>' + m.role + '\n' }}{%- if reasoning %}"
        "{{- '<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' }}{%- endif %}{{- content }}"
        '{%- for c in m.tool_calls or [] %}{{- \'<tool_call>\n{"name": "\' }}'
        '{{- c.function.name }}{{- \'", "arguments": \' }}{{- c.function.arguments | tojson }}'
        "{{- '}\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\n' }}{%- endfor %}"
        "{{- '<|im_start|>assistant\n' }}"
    ),
    "qwen 3 coder": (
        "{% macro keys(object, skipped) %}{% for key in object if key not in skipped %}"
        "{%- if object[key] is mapping %}{{ '\n<' ~ key ~ '>' ~ (object[key] | tojson | safe)"
        " ~ '</' ~ key ~ '>' }}{% else %}{{ '\n<' ~ key ~ '>' ~ (object[key] | string)"
        " ~ '</' ~ key ~ '>' }}{% endif %}{% endfor %}{% endmacro %}"
        "{%- for t in tools or [] %}{{ keys(t.function, ['name']) }}{% endfor %}"
        "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' ~ m.content }}"
        "{%- for c in m.tool_calls or [] %}{{- '<function=' ~ c.function.name ~ '>' }}"
        "{%- for name, value in c.function.arguments | items %}"
        "{{- '<parameter=' ~ name ~ '>\n' }}{{- value if value is string else value | tojson }}"
        "{{- '</parameter>' }}{%- endfor %}{%- endfor %}{{- '<|im_end|>\n' }}{%- endfor %}"
        "{{- '<|im_start|>assistant\n' }}"
    ),
    "mistral": (
        "{{- '<s>' }}{%- if tools %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson) }}"
        "{{- '[/AVAILABLE_TOOLS]' }}{%- endif %}{%- for m in messages %}"
        "{%- if m.role == 'user' %}{{- '[INST]%s[/INST]' % m.content }}"
        "{%- elif m.role == 'system' %}{{- '[SYSTEM_PROMPT]{}[/SYSTEM_PROMPT]'.format(m.content) }}"
        "{%- elif m.role == 'tool' %}{{- '[TOOL_RESULTS]' | e ~ m.content | string }}"
        "{{- '[/TOOL_RESULTS]' }}{%- else %}{%- for c in m.tool_calls or [] %}"
        "{{- '[TOOL_CALLS]' ~ c.function.name ~ '[ARGS]' ~ c.function.arguments | tojson }}"
        "{%- endfor %}{{- m.content ~ '</s>' }}{%- endif %}{%- endfor %}"
    ),
    "gemma": (
        "{{ '<bos>' }}{%- set first = '' %}{%- if messages[0].role == 'system' %}"
        "{%- set first = messages[0].content + '\n\n' %}{%- set messages = messages[1:] %}"
        "{%- endif %}{%- for m in messages %}{%- if m.role == 'assistant' %}"
        "{%- set role = 'model' %}"
        "{%- else %}{%- set role = m.role %}{%- endif %}"
        "{{ '<start_of_turn>' + role + '\n' + (first if loop.first else '') }}"
        "{%- set body %}{{ m.content | trim }}{% endset %}{{ body }}"
        "{{ '<end_of_turn>\n' }}{%- endfor %}{{ '<start_of_turn>model\n' }}"
    ),
    "phi": (
        "{% for m in messages %}{{ '<|' + m['role'] + '|>' + '\n' + m['content'] + '<|end|>\n' }}"
        "{% endfor %}{{ '<|assistant|>\n' }}"
    ),
    "deepseek": (
        "{% set ns = namespace(system='', first=true) %}{%- for m in messages %}"
        "{%- if m['role'] == 'system' %}{% if ns.first %}{% set ns.system = ns.system"
        " + m['content'] %}"
        "{% set ns.first = false %}{% else %}"
        "{% set ns.system = ns.system + '\n\n' + m['content'] %}{% endif %}{%- endif %}"
        "{%- endfor %}"
        "{{ '<｜begin▁of▁sentence｜>' }}{{ ns.system }}{%- for m in messages %}"
        "{%- if m['role'] == 'user' %}{{ '<｜User｜>' + m['content'] }}{%- endif %}"
        "{%- if m['role'] == 'assistant' %}{{ '<｜Assistant｜>' }}"
        "{%- for c in m.tool_calls or [] %}"
        "{{ '<｜tool▁call▁begin｜>' + c['function']['name'] + '<｜tool▁sep｜>'"
        " + c['function']['arguments'] | tojson + '<｜tool▁call▁end｜>' }}{%- endfor %}"
        "{%- set content = m['content'] %}{%- if '</think>' in content %}"
        "{%- set content = content.split('</think>') | last %}{%- endif %}"
        "{{ content + '<｜end▁of▁sentence｜>' }}{%- endif %}{%- if m['role'] == 'tool' %}"
        "{{ '<｜tool▁output▁begin｜>' + m['content'] + '<｜tool▁output▁end｜>' }}{%- endif %}"
        "{%- endfor %}{{ '<｜Assistant｜>' }}"
    ),
    "gpt-oss": (
        "{%- macro header(role, channel) -%}{{- '<|start|>' + role -}}{%- if channel %}"
        "{{- '<|channel|>' + channel -}}{%- endif %}{{- '<|message|>' -}}{%- endmacro -%}"
        "{%- for m in messages -%}{%- if '<|channel|>final' in m.content -%}"
        "{{- raise_exception('a message with a channel') -}}{%- endif -%}"
        "{%- if m.role == 'assistant' -%}{%- if m.reasoning_content -%}"
        "{{- header('assistant', 'analysis') + m.reasoning_content + '<|end|>' -}}{%- endif -%}"
        "{%- for c in m.tool_calls or [] -%}{{- '<|start|>assistant to=functions.'"
        " + c.function.name"
        " + '<|channel|>commentary json<|message|>' + c.function.arguments | tojson"
        " + '<|call|>' -}}"
        "{%- endfor -%}{{- header('assistant', 'final') + m.content + '<|end|>' -}}"
        "{%- elif m.role == 'tool' -%}{{- '<|start|>functions.' ~ (m.name or 'f')"
        " ~ ' to=assistant<|message|>' ~ m.content | tojson ~ '<|end|>' -}}{%- else -%}"
        "{{- header(m.role, none) ~ m.content ~ '<|end|>' -}}{%- endif -%}{%- endfor -%}"
        "{{- '<|start|>assistant' -}}"
    ),
    "glm": (
        "[gMASK]<sop>{% for m in messages %}{% if m.role == 'assistant' %}<|assistant|>"
        "{{ '\n<think>' ~ (m.reasoning_content or '') ~ '</think>' }}"
        "{% for c in m.tool_calls or [] %}{{ '\n<tool_call>' ~ c.function.name }}"
        "{% for k, v in c.function.arguments.items() %}{{ '\n<arg_key>' ~ k ~ '</arg_key>' }}"
        "{{ '<arg_value>' }}{{ v | tojson if v is not string else v }}{{ '</arg_value>' }}"
        "{% endfor %}{% endfor %}{{ '\n' ~ m.content }}{% elif m.role == 'tool' %}"
        "<|observation|>\n<tool_response>{{ m.content }}</tool_response>{% else %}"
        "{{ '<|' ~ m.role ~ '|>' }}\n{{ m.content }}{% endif %}{% endfor %}<|assistant|>"
    ),
    "command-r": (
        "{% macro document(d) %}{{ d.title }}: {{ d.text | replace('\n', ' ') }}{% endmacro %}"
        "{{ '<BOS_TOKEN>' }}{% for m in messages %}"
        "{{ ['<|START_OF_TURN_TOKEN|>', '<|%s_TOKEN|>' % (m.role | upper), m.content] | join }}"
        "{{ '<|END_OF_TURN_TOKEN|>' }}{% endfor %}"
        "{% for d in documents or [] %}{{ document(d) }}{% endfor %}"
        "{{ '<|START_OF_TURN_TOKEN|>' ~ '<|ASSISTANT_TOKEN|>' }}"
    ),
    "replaced": (
        "{% for m in messages %}{{ '<|im_start|>ROLE\nTEXT<|im_end|>\n' | replace('ROLE', m.role)"
        " | replace('TEXT', m.content) }}{% endfor %}"
        "{{ '<|im_start|>ROLE'.replace('ROLE', 'assistant') }}"
    ),
}

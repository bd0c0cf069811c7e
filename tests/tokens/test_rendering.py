"""The text that the model sees, and which part of it is learned."""

import pytest

from tuneplan.errors import InputError
from tuneplan.tokens.encoders import ApproximateEncoder
from tuneplan.tokens.families import load_families
from tuneplan.tokens.rendering import FormatRenderer, renderer_for
from tuneplan.tokens.shapes import Chat, Plain, Shape, samples_of
from tuneplan.tokens.templates import TemplateRenderer
from tuneplan.tokens.tokenizers import Tokenizer
from tuneplan.tokens.turns import RowProblem

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKED = (
    "{%- for m in messages %}\n    {%- if m.role == 'assistant' %}\n"
    "{{- '<a>' }}{% generation %}{{ m.content + '</a>' }}{% endgeneration %}\n"
    "    {%- else %}\n{{- '<u>' + m.content + '</u>' }}\n    {%- endif %}\n{%- endfor %}"
)
# Drops the reasoning of earlier turns and adds an empty one to the last, as Qwen3's does.
THINKING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}"
    "{% set answer = m.content.split('</think>')[-1].lstrip('\\n') %}"
    "{% if loop.last %}<think>\n\n</think>\n\n{% endif %}{{ answer }}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
)


def chat(*said, **more):
    return Chat(messages=tuple({"role": who, "content": what} for who, what in said), **more)


def learned(rendered):
    return [rendered.text[start:end] for start, end in rendered.spans]


def template(source, **specials):
    return TemplateRenderer(source, specials, ("<|im_end|>", "</a>"))


def chatml(**more):
    return FormatRenderer(chat=load_families().chats["chatml"], **more)


class TestFormats:
    def test_chatml_learns_the_answers_and_their_end(self):
        rendered = chatml().render(chat(("user", "q"), ("assistant", "a"), ("user", "r")))
        assert rendered.text == (
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
            "<|im_start|>user\nr<|im_end|>\n"
        )
        assert learned(rendered) == ["a<|im_end|>"]

    def test_the_default_system_message_stands_where_there_is_none(self):
        renderer = chatml(default_system="be good")
        assert renderer.render(chat(("user", "q"))).text.startswith("<|im_start|>system\nbe good")
        own = renderer.render(chat(("system", "mine"), ("user", "q"))).text
        assert own.startswith("<|im_start|>system\nmine<|im_end|>")
        assert "be good" not in own

    def test_answers_in_the_prompt_are_not_learned(self):
        said = (("user", "q"), ("assistant", "a"), ("user", "r"), ("assistant", "b"))
        assert learned(chatml().render(chat(*said, first_trained=3))) == ["b<|im_end|>"]

    def test_mistral_puts_the_system_text_into_the_first_user_turn(self):
        renderer = FormatRenderer(chat=load_families().chats["mistral"], bos="<s>")
        rendered = renderer.render(chat(("system", "s"), ("user", "q"), ("assistant", "a")))
        assert rendered.text == "<s>[INST]s\n\nq[/INST]a</s>"
        assert learned(rendered) == ["a</s>"]

    def test_llama_3_writes_headers(self):
        renderer = FormatRenderer(chat=load_families().chats["llama3"], bos="<|begin_of_text|>")
        assert renderer.render(chat(("user", "q"))).text == (
            "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|>"
        )

    def test_tools_are_written_into_the_system_message(self):
        rendered = chatml().render(chat(("user", "q"), tools=({"name": "f"},)))
        assert rendered.text.startswith('<|im_start|>system\n{"name": "f"}<|im_end|>\n')


class TestTemplates:
    def test_generation_marks_say_what_is_learned(self):
        rendered = template(MARKED).render(chat(("user", "q"), ("assistant", "a")))
        assert rendered.text == "<u>q</u><a>a</a>"
        assert learned(rendered) == ["a</a>"]

    def test_generation_marks_before_the_first_learned_message_do_not_count(self):
        said = (("user", "q"), ("assistant", "a"), ("user", "r"), ("assistant", "b"))
        assert learned(template(MARKED).render(chat(*said, first_trained=3))) == ["b</a>"]

    def test_without_marks_the_answers_are_found_even_where_their_words_stand_elsewhere(self):
        said = (("user", "user"), ("assistant", "assistant"), ("user", "x"), ("assistant", "a"))
        rendered = template(CHATML).render(chat(*said))
        assert learned(rendered) == ["assistant<|im_end|>", "a<|im_end|>"]
        assert rendered.text[: rendered.spans[0][0]].endswith("<|im_start|>assistant\n")

    def test_space_around_an_answer_does_not_lose_its_end(self):
        rendered = template(CHATML).render(chat(("user", "q"), ("assistant", " a \n")))
        assert learned(rendered) == ["a \n<|im_end|>"]

    def test_reasoning_that_the_template_adds_is_learned_and_that_it_drops_is_not_there(self):
        said = (("user", "q"), ("assistant", "<think>\nx\n</think>\n\na"), ("user", "r"))
        rendered = template(THINKING).render(chat(*said, ("assistant", "b")))
        assert learned(rendered) == ["a<|im_end|>", "<think>\n\n</think>\n\nb<|im_end|>"]
        assert "x" not in rendered.text

    def test_a_template_that_rewrites_the_answer_is_found_behind_its_prompt(self):
        upper = CHATML.replace("{{ m.content }}", "{{ m.content | upper | trim }}")
        rendered = template(upper).render(chat(("user", "q"), ("assistant", "abc")))
        assert learned(rendered) == ["ABC<|im_end|>"]

    def test_a_tool_call_without_words_is_learned_to_its_end(self):
        source = CHATML.replace("{{ m.content }}", "{{ m.content }}{{ m.tool_calls or '' }}")
        calls = ({"role": "assistant", "content": "", "tool_calls": "call()"},)
        asked = ({"role": "user", "content": "q"},)
        rendered = template(source).render(Chat(messages=asked + calls))
        assert learned(rendered) == ["call()<|im_end|>"]

    def test_a_row_that_the_template_refuses_is_a_row_problem_with_its_reason(self):
        source = "{{ raise_exception('roles must alternate') }}"
        with pytest.raises(RowProblem, match="roles must alternate"):
            template(source).render(chat(("user", "q")))

    def test_a_template_that_fails_on_a_row_is_a_row_problem(self):
        with pytest.raises(RowProblem, match="the chat template refuses this row"):
            template("{{ messages[0].content + 1 }}").render(chat(("user", "q")))

    def test_a_template_that_does_not_parse_is_told_at_once(self):
        with pytest.raises(InputError, match="does not read"):
            template("{% if %}")

    @pytest.mark.parametrize(
        "source",
        [
            "{{ ().__class__.__base__.__subclasses__() }}",
            "{{ messages.__init__.__globals__ }}",
            "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
            "{{ ''|attr('__class__')|attr('__mro__') }}",
            "{{ raise_exception.__globals__ }}",
            "{{ messages.append(1) }}",
            "{{ '%s'.__class__ }}{{ '{0.__class__}'.format(messages) }}",
            "{{ 'x' * 100000000000 }}",
            "{{ 9 ** 99999999999 }}",
        ],
    )
    def test_a_template_that_leaves_its_sandbox_is_refused(self, source):
        with pytest.raises(InputError, match="the chat template is refused"):
            template(source).render(chat(("user", "q")))

    def test_an_end_of_thought_that_the_prompt_writes_is_not_learned(self):
        source = (
            "{% for m in messages %}{% if m.role == 'user' %}<u>{{ m.content }}"
            "{% elif loop.last %}<a></think>{{ m.content }}</s>"
            "{% else %}<a><think>t</think>{{ m.content }}</s>{% endif %}{% endfor %}"
        )
        said = [("user", "q"), ("assistant", "b"), ("user", "q"), ("assistant", "c")]
        rendered = TemplateRenderer(source, {}, ["</s>"]).render(chat(*said))
        assert learned(rendered) == ["<think>t</think>b</s>", "c</s>"]

    def test_of_a_pair_all_that_follows_the_prompt_is_learned(self):
        # trl 1.16 dpo_trainer.py `tokenize_fn`: the line break after the end token too.
        row = {"prompt": [{"role": "user", "content": "q"}], "chosen": "a", "rejected": "b"}
        tokenizer = Tokenizer(
            name="t", source="here", encoder=ApproximateEncoder(), chat_template=CHATML
        )
        renderer = renderer_for(tokenizer)
        rendered = [renderer.render(one) for one in samples_of(row, Shape.PREFERENCE)]
        assert [learned(one) for one in rendered] == [["a<|im_end|>\n"], ["b<|im_end|>\n"]]
        (one,) = samples_of({**row, "completion": [{"role": "assistant", "content": "a"}]},
                            Shape.PROMPT_COMPLETION)  # fmt: skip
        assert learned(renderer.render(one)) == ["a<|im_end|>"]

    def test_a_template_that_picks_text_out_of_parts_gets_parts(self):
        source = "{% for m in messages %}<{{ m['content'][0]['text'] }}>{% endfor %}"
        rendered = template(source).render(chat(("user", "q"), ("assistant", "")))
        assert rendered.text == "<q><>"

    def test_a_template_may_multiply_within_reason(self):
        rendered = template("{{ '=' * 20 }}{{ 2 * 3 }}{{ 2 ** 8 }}").render(chat(("user", "q")))
        assert rendered.text == "=" * 20 + "6256"

    def test_json_in_a_template_keeps_its_letters(self):
        source = "{{ messages[0] | tojson }}"
        assert "中文" in template(source).render(chat(("user", "中文"))).text

    def test_the_date_in_a_template_is_the_same_every_day(self):
        source = "{{ strftime_now('%Y-%m-%d') }}"
        assert template(source).render(chat(("user", "q"))).text == "2026-01-01"


class TestChoice:
    def tokenizer(self, **more):
        return Tokenizer(name="x", source="x", encoder=ApproximateEncoder(), **more)

    def test_an_unknown_model_is_rendered_as_chatml_and_that_is_an_assumption(self):
        renderer = renderer_for(self.tokenizer())
        assert [one.name for one in renderer.assumptions] == ["data.chat_template"]
        assert renderer.assumptions[0].value == "chatml"

    def test_the_format_of_a_family_is_an_assumption_with_its_source(self):
        family = load_families().of_model("meta-llama/Llama-3.1-8B")
        (assumption,) = renderer_for(self.tokenizer(family=family)).assumptions
        assert assumption.value == "llama3"
        assert "llama-models" in assumption.source

    def test_a_template_with_marks_leaves_nothing_to_assume(self):
        assert renderer_for(self.tokenizer(chat_template=MARKED)).assumptions == ()

    def test_a_template_without_marks_leaves_the_learned_part_assumed(self):
        (assumption,) = renderer_for(self.tokenizer(chat_template=CHATML)).assumptions
        assert assumption.name == "data.trained_tokens"

    def test_text_gets_one_end_token_and_never_two(self):
        specials = {"bos_token": "<s>", "eos_token": "</s>"}
        renderer = renderer_for(self.tokenizer(specials=specials))
        once = renderer.render(Plain(prompt="", completion="text"))
        assert once.text == "<s>text</s>"
        assert renderer.render(Plain(prompt="", completion="text</s>")).text == "<s>text</s>"

    def test_of_prompt_and_completion_only_the_completion_is_learned(self):
        renderer = renderer_for(self.tokenizer(specials={"eos_token": "</s>"}))
        assert learned(renderer.render(Plain(prompt="p", completion="c"))) == ["c</s>"]

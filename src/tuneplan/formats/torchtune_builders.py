"""Which of torchtune's model builders a model is, and what its checkpoint's files are called.

Builders, tokenizers, file names and numbers of files: torchtune ``models/*/_model_builders.py`` and
``recipes/configs`` 0.6.1 (for Llama 2, CodeLlama and Mistral the safetensors that lie beside the
``.bin`` files).
"""

from __future__ import annotations

import re
from typing import Final

from tuneplan.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchtuneModel:
    """One builder.

    Attributes:
        family: Module below ``torchtune.models``.
        builder: Name of the function; with ``lora_`` before it for adapters.
        tokenizer: Dotted path of the tokenizer.
        tokenizer_files: Argument to file in the checkpoint's folder.
        model_type: Of the checkpointer.
        num_files: Files of weights.
    """

    family: str
    builder: str
    tokenizer: str
    tokenizer_files: tuple[tuple[str, str], ...]
    model_type: str
    num_files: int

    @property
    def adapts_output(self) -> bool:
        """Whether the builder of adapters reaches the output; not where it is tied, mostly."""
        tied = ("gemma", "gemma2", "qwen2")
        return self.family not in tied or self.builder == "qwen2_7b"

    def component(self, *, adapts: bool) -> str:
        """Dotted path of the builder."""
        return f"torchtune.models.{self.family}.{'lora_' if adapts else ''}{self.builder}"

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the checkpoint's files."""
        if self.num_files == 1:
            return ("model.safetensors",)
        return tuple(
            f"model-{at:05d}-of-{self.num_files:05d}.safetensors"
            for at in range(1, self.num_files + 1)
        )


_LLAMA3: Final = ("llama3.llama3_tokenizer", (("path", "original/tokenizer.model"),))
_LLAMA2: Final = ("llama2.llama2_tokenizer", (("path", "tokenizer.model"),))
_MISTRAL: Final = ("mistral.mistral_tokenizer", (("path", "tokenizer.model"),))
_GEMMA: Final = ("gemma.gemma_tokenizer", (("path", "tokenizer.model"),))
_PHI3: Final = ("phi3.phi3_mini_tokenizer", (("path", "tokenizer.model"),))
_PHI4: Final = (
    "phi4.phi4_tokenizer",
    (("vocab_path", "vocab.json"), ("merges_path", "merges.txt")),
)
_BYTE_PAIRS: Final = (("path", "vocab.json"), ("merges_file", "merges.txt"))
_QWEN2: Final = ("qwen2.qwen2_tokenizer", _BYTE_PAIRS)
_QWEN25: Final = ("qwen2_5.qwen2_5_tokenizer", _BYTE_PAIRS)
# Pattern of the name, family, builder, tokenizer, model type, number of files.
_MODELS: Final = (
    (r"llama-2-7b(-chat)?-hf", "llama2", "llama2_7b", _LLAMA2, "LLAMA2", 2),
    (r"llama-2-13b(-chat)?-hf", "llama2", "llama2_13b", _LLAMA2, "LLAMA2", 3),
    (r"llama-2-70b(-chat)?-hf", "llama2", "llama2_70b", _LLAMA2, "LLAMA2", 15),
    (r"codellama-7b(-instruct|-python)?-hf", "code_llama2", "code_llama2_7b", _LLAMA2, "LLAMA2", 2),
    (r"(meta-)?llama-3-8b(-instruct)?", "llama3", "llama3_8b", _LLAMA3, "LLAMA3", 4),
    (r"(meta-)?llama-3-70b(-instruct)?", "llama3", "llama3_70b", _LLAMA3, "LLAMA3", 30),
    (r"(meta-)?llama-3\.1-8b(-instruct)?", "llama3_1", "llama3_1_8b", _LLAMA3, "LLAMA3", 4),
    (r"(meta-)?llama-3\.1-70b(-instruct)?", "llama3_1", "llama3_1_70b", _LLAMA3, "LLAMA3", 30),
    (r"(meta-)?llama-3\.1-405b(-instruct)?", "llama3_1", "llama3_1_405b", _LLAMA3, "LLAMA3", 191),
    (r"llama-3\.2-1b(-instruct)?", "llama3_2", "llama3_2_1b", _LLAMA3, "LLAMA3_2", 1),
    (r"llama-3\.2-3b(-instruct)?", "llama3_2", "llama3_2_3b", _LLAMA3, "LLAMA3_2", 2),
    (r"llama-3\.3-70b-instruct", "llama3_3", "llama3_3_70b", _LLAMA3, "LLAMA3", 30),
    (r"mistral-7b-v0\.1", "mistral", "mistral_7b", _MISTRAL, "MISTRAL", 2),
    (r"mistral-7b-instruct-v0\.1", "mistral", "mistral_7b", _MISTRAL, "MISTRAL", 2),
    (r"gemma-2b", "gemma", "gemma_2b", _GEMMA, "GEMMA", 2),
    (r"gemma-7b", "gemma", "gemma_7b", _GEMMA, "GEMMA", 4),
    (r"gemma-2-2b", "gemma2", "gemma2_2b", _GEMMA, "GEMMA2", 3),
    (r"gemma-2-9b", "gemma2", "gemma2_9b", _GEMMA, "GEMMA2", 8),
    (r"gemma-2-27b", "gemma2", "gemma2_27b", _GEMMA, "GEMMA2", 24),
    (r"phi-3-mini-4k-instruct", "phi3", "phi3_mini", _PHI3, "PHI3_MINI", 2),
    (r"phi-4", "phi4", "phi4_14b", _PHI4, "PHI4", 6),
    (r"qwen2-0\.5b(-instruct)?", "qwen2", "qwen2_0_5b", _QWEN2, "QWEN2", 1),
    (r"qwen2-1\.5b(-instruct)?", "qwen2", "qwen2_1_5b", _QWEN2, "QWEN2", 1),
    (r"qwen2-7b(-instruct)?", "qwen2", "qwen2_7b", _QWEN2, "QWEN2", 4),
    (r"qwen2\.5-0\.5b(-instruct)?", "qwen2_5", "qwen2_5_0_5b", _QWEN25, "QWEN2", 1),
    (r"qwen2\.5-1\.5b", "qwen2_5", "qwen2_5_1_5b_base", _QWEN25, "QWEN2", 1),
    (r"qwen2\.5-1\.5b-instruct", "qwen2_5", "qwen2_5_1_5b_instruct", _QWEN25, "QWEN2", 1),
    (r"qwen2\.5-3b(-instruct)?", "qwen2_5", "qwen2_5_3b", _QWEN25, "QWEN2", 2),
    (r"qwen2\.5-7b", "qwen2_5", "qwen2_5_7b_base", _QWEN25, "QWEN2", 4),
    (r"qwen2\.5-7b-instruct", "qwen2_5", "qwen2_5_7b_instruct", _QWEN25, "QWEN2", 4),
    (r"qwen2\.5-14b", "qwen2_5", "qwen2_5_14b_base", _QWEN25, "QWEN2", 8),
    (r"qwen2\.5-14b-instruct", "qwen2_5", "qwen2_5_14b_instruct", _QWEN25, "QWEN2", 8),
    (r"qwen2\.5-32b", "qwen2_5", "qwen2_5_32b_base", _QWEN25, "QWEN2", 17),
    (r"qwen2\.5-32b-instruct", "qwen2_5", "qwen2_5_32b_instruct", _QWEN25, "QWEN2", 17),
    (r"qwen2\.5-72b", "qwen2_5", "qwen2_5_72b_base", _QWEN25, "QWEN2", 37),
    (r"qwen2\.5-72b-instruct", "qwen2_5", "qwen2_5_72b_instruct", _QWEN25, "QWEN2", 37),
)


def torchtune_model(name: str) -> TorchtuneModel | None:
    """The builder of a model by its hub name; None where torchtune has none."""
    leaf = name.rstrip("/").rsplit("/", 1)[-1].lower()
    for pattern, family, builder, tokenizer, model_type, num_files in _MODELS:
        if re.fullmatch(pattern, leaf):
            return TorchtuneModel(
                family=family,
                builder=builder,
                tokenizer=f"torchtune.models.{tokenizer[0]}",
                tokenizer_files=tokenizer[1],
                model_type=model_type,
                num_files=num_files,
            )
    return None


def known_models() -> tuple[str, ...]:
    """Families that torchtune builds, for messages."""
    return tuple(dict.fromkeys(family for _, family, *_ in _MODELS))

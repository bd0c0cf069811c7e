import pytest

from tuneplan.runs.targets import ALL_LINEAR, target_modules

SEVEN = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@pytest.mark.parametrize(
    ("text", "framework", "model", "leaves"),
    [
        ("query,value", "litgpt", "llama-2-7b", ("query", "value")),
        (
            "query,key,value,projection,mlp,head",
            "litgpt",
            "microsoft/phi-2",
            ("query", "key", "value", "projection", "mlp", "head"),
        ),
        ("DEFAULT (qkv)", "ms-swift", "qwen-14b-chat", ("c_attn",)),
        ("DEFAULT (qkv)", "ms-swift", "chatglm3-6b", ("query_key_value",)),
        ("DEFAULT (qkv)", "ms-swift", "baichuan2-13b-chat", ("W_pack",)),
        ("DEFAULT", "ms-swift", "yi-6b-chat", ("q_proj", "k_proj", "v_proj")),
        ("DEFAULT", "ms-swift", "qwen1half-7b-chat", ("q_proj", "k_proj", "v_proj")),
        (
            "q_proj,v_proj,output_proj + mlp",
            "torchtune",
            "Llama 3.2 3B",
            ("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        ),
        ("c_attn,c_proj,w1,w2", "transformers", "Qwen-7B", ("c_attn", "c_proj", "w1", "w2")),
        ("q_proj k_proj v_proj o_proj", "trl", "m", ("q_proj", "k_proj", "v_proj", "o_proj")),
        (
            "q,k,v,o,down,up,gate_proj",
            "axolotl",
            "m",
            (*SEVEN[:4], "down_proj", "up_proj", "gate_proj"),
        ),
        ("linear_qkv (fused q,k,v)", "nemo", "m", ("q_proj", "k_proj", "v_proj")),
        ("self_attn.q_proj,self_attn.k_proj", "ms-swift", "m", ("q_proj", "k_proj")),
    ],
)
def test_spellings_become_leaf_names(text, framework, model, leaves):
    assert target_modules(text, framework=framework, model=model) == leaves


@pytest.mark.parametrize("text", ["ALL", "all-linear", "all linear (attention + MLP)"])
def test_all_linear_stays_a_word(text):
    assert target_modules(text, framework=None, model="m") == ALL_LINEAR


def test_a_pattern_stays_whole():
    pattern = r"model.layers.[\d]+.(mlp|self_attn).(up|q)_proj"
    assert target_modules(pattern, framework="axolotl", model="m") == pattern


def test_a_blank_cell_leaves_the_programs_default():
    assert target_modules("", framework="litgpt", model="m") is None

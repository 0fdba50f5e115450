"""Makes the model folder that Dynamo's frontend and mock engine read: a tokenizer and a Llama's outline, no weights.

Run by an installed Dynamo's Python: `tiny_model.py FOLDER`. Nothing is downloaded: the tokenizer learns from the
reference texts that come with Python. The mock engine answers with random tokens, many of them half a character, so
that 50 tokens arrive as a few chunks of text: tokens must be counted by `usage`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from pydoc_data.topics import topics

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 2048
CONTEXT = 32768
BEGIN, END = "<s>", "</s>"
CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def make_tokenizer() -> Tokenizer:
    """Byte-level: any text can be said, any token be printed."""
    bpe = Tokenizer(models.BPE(unk_token=None))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[BEGIN, END], initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(topics.values(), trainer)
    return bpe


TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": BEGIN,
    "eos_token": END,
    "model_max_length": CONTEXT,
    "chat_template": CHAT,
}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
GENERATION = {"bos_token_id": 0, "eos_token_id": 1}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    make_tokenizer().save(str(folder / "tokenizer.json"))
    for name, content in (
        ("tokenizer_config.json", TOKENIZER_CONFIG),
        ("config.json", CONFIG),
        ("generation_config.json", GENERATION),
    ):
        (folder / name).write_text(json.dumps(content, indent=1))

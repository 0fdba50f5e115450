"""Makes the model that a lab serves: a Llama of two layers whose weights the engine draws at random, and a tokenizer.

Run by an installed engine's Python: `tiny_model.py FOLDER`. Nothing is downloaded: the tokenizer learns from the
reference texts that come with Python, so that plain English costs one to two tokens a word.
"""

from __future__ import annotations

import sys
from pathlib import Path
from pydoc_data.topics import topics

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, PreTrainedTokenizerFast

VOCABULARY = 4096
CONTEXT = 16384  # two rounds of 2500 random tokens, read again as text, must fit
BEGIN, END, PAD = "<s>", "</s>", "<pad>"
CHAT = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level: any text can be said, any token be printed."""
    bpe = Tokenizer(models.BPE(unk_token=None))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[BEGIN, END, PAD], initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(topics.values(), trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token=BEGIN, eos_token=END, pad_token=PAD)
    tokenizer.chat_template = CHAT
    return tokenizer


def make_config() -> LlamaConfig:
    """The smallest shape that the engine's code for Llama takes as it is."""
    return LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        tie_word_embeddings=False,
        torch_dtype="bfloat16",
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    make_tokenizer().save_pretrained(folder)
    make_config().save_pretrained(folder)

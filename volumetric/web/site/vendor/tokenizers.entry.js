export { Tokenizer } from "@huggingface/tokenizers";

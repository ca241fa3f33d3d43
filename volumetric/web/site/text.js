// Texts of language models: the tokenizer, the chat template, and the text of tokens as they come. Only language models and
// encoders load this module, and with it the vendored libraries.

import { Template } from "./vendor/jinja.min.js";
import { Tokenizer } from "./vendor/tokenizers.min.js";
import { FormatError, GenerationError, InputError } from "./errors.js";

const HELD_BACK = 16; // a character has at most four bytes, so more ids are held back only for invalid text
const MOST_TEMPLATE = 250_000;
const MOST_OUTPUT = 8_000_000;
const MOST_RANGE = 100_000; // as in Jinja's sandbox; with a longer one the library's own range ends the browser's process
const BOUNDED = "{% set range = bounded_range %}"; // the library lets no caller name a variable like one of its functions
const MARK = "\udfff"; // half of a surrogate pair: no text has one, so nobody can forge it

/**
 * Texts of a model.
 * @param {object | null} json tokenizer.json
 * @param {{chat_template?: string | null, special?: Record<string, string>}} about
 */
export class Texts {
  #tokenizer;
  #json;
  #template;
  #special;
  #control = null; // the texts of control tokens
  #plain = null; // the tokenizer without them

  constructor(json, { chat_template: template = null, special = {} } = {}) {
    this.#tokenizer = json === null ? null : tokenized(() => tokenizerOf(json));
    this.#json = json;
    this.#template = template;
    this.#special = special ?? {};
  }

  /** Whether there is a chat template. */
  get chats() {
    return typeof this.#template === "string" && this.#tokenizer !== null;
  }

  get hasTokenizer() {
    return this.#tokenizer !== null;
  }

  /** Return the ids of a text, with the special tokens that the tokenizer adds if asked to. */
  encode(text, { special = true } = {}) {
    if (this.#tokenizer === null) throw new InputError("This model has no tokenizer.", "Pass token ids.");
    return idsOf(this.#tokenizer, text, special);
  }

  /**
   * Return the ids of a conversation. Control tokens that stand in messages are text: only the template writes real ones.
   */
  encodeChat(messages, options) {
    this.encode(""); // raises without a tokenizer
    this.#control ??= anyOf([...this.#tokenizer.get_added_tokens_decoder().values()].filter(one => one.special).map(one => one.content));
    const marked = value => {
      if (typeof value === "string") return value.replaceAll(MARK, "\ufffd").replace(this.#control, one => one[0] + MARK + one.slice(1));
      if (Array.isArray(value)) return value.map(marked);
      return value && typeof value === "object" ? Object.fromEntries(Object.entries(value).map(([key, one]) => [key, marked(one)])) : value;
    };
    const text = this.render(Array.isArray(messages) ? marked(messages) : messages, options);
    if (!text.includes(MARK)) return this.encode(text, { special: false });
    this.#plain ??= tokenizerOf({ ...this.#json, added_tokens: this.#json.added_tokens.filter(one => !one.special) });
    const ids = [];
    let at = 0;
    const plain = end => {
      const part = text.slice(at, end).replaceAll(MARK, "");
      if (part) ids.push(...idsOf(this.#plain, part, false));
    };
    for (const match of text.matchAll(this.#control)) {
      plain(match.index);
      ids.push(this.#tokenizer.token_to_id(match[0]));
      at = match.index + match[0].length;
    }
    plain(text.length);
    return ids;
  }

  decode(ids) {
    return this.#tokenizer === null || !ids.length ? "" : tokenized(() => this.#tokenizer.decode(ids, { skip_special_tokens: true }));
  }

  /** Return messages as text in the model's format. */
  render(messages, options = {}) {
    if (typeof this.#template !== "string") throw new InputError("This model has no chat template.", "Use generate() with a text.");
    if (!Array.isArray(messages) || !messages.every(one => one && typeof one === "object" && typeof one.role === "string")) {
      throw new InputError("Messages must be a list of objects.", 'For example [{role: "user", content: "…"}].');
    }
    if (this.#template.length > MOST_TEMPLATE) throw new GenerationError(`The chat template is longer than ${MOST_TEMPLATE} characters.`);
    let text;
    try {
      text = new Template(BOUNDED + this.#template).render({ ...this.#special, bounded_range: range, documents: null, tools: null, add_generation_prompt: true, ...options, messages });
    } catch (error) {
      throw new GenerationError(`The chat template fails: ${error?.message ?? error}.`, "Other messages or roles may work; or use generate() with a text.");
    }
    if (text.length > MOST_OUTPUT) throw new GenerationError(`The chat template writes more than ${MOST_OUTPUT} characters.`);
    return text;
  }
}

/** `range` of templates. */
function range(...ends) {
  const [start, stop, step] = ends.length < 2 ? [0, ends[0], 1] : [...ends, 1];
  const count = Math.max(0, Math.ceil((stop - start) / step));
  if (!(count <= MOST_RANGE)) throw new Error(`a range has more than ${MOST_RANGE} numbers`);
  return Array.from({ length: count }, (_, i) => start + i * step);
}

/** The tokenizer of tokenizer.json; the library reads the unknown token of a word-level model from its second argument. */
const tokenizerOf = json => new Tokenizer(json, { clean_up_tokenization_spaces: false, unk_token: json.model?.unk_token });

/** Return what the library gives; its errors are of tokenizer.json. */
function tokenized(work) {
  try {
    return work();
  } catch (error) {
    throw new FormatError(`tokenizer.json cannot be used: ${error.message}.`, "Export the model again.");
  }
}

function idsOf(tokenizer, text, special) {
  const { ids } = tokenized(() => tokenizer.encode(text, { add_special_tokens: special }));
  if (ids.includes(undefined)) throw new InputError("The tokenizer has no token for a part of the text.", "Write it with other characters.");
  return ids;
}

/** A pattern of any of some texts, the longest first; of none if there are none. */
function anyOf(texts) {
  const escaped = texts.sort((a, b) => b.length - a.length).map(text => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&"));
  return new RegExp(escaped.join("|") || "(?!)", "g");
}

/** Decodes ids one at a time; incomplete characters are held back, and text that was returned never changes. */
export class TextStream {
  #texts;
  #ids = []; // the latest returned ids, as context, and those held back
  #emitted = 0;

  constructor(texts) {
    this.#texts = texts;
  }

  push(id) {
    this.#ids.push(id);
    const before = this.#texts.decode(this.#ids.slice(0, this.#emitted)), after = this.#texts.decode(this.#ids);
    if (after.endsWith("\ufffd") && this.#ids.length - this.#emitted <= HELD_BACK) return "";
    if (after.length <= before.length) return "";
    this.#ids = this.#ids.slice(this.#emitted);
    this.#emitted = this.#ids.length;
    return after.slice(before.length);
  }

  flush() {
    const before = this.#texts.decode(this.#ids.slice(0, this.#emitted)), after = this.#texts.decode(this.#ids);
    this.#ids = [];
    this.#emitted = 0;
    return after.slice(before.length);
  }
}

export { Template } from "@huggingface/jinja";

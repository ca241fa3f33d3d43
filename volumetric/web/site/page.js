// The script of a folder; a page of one file starts main.js by itself.
import { start } from "./main.js";

start();

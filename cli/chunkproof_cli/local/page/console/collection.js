import { empty } from "./dom.js";
export const render = (context) => context.put(empty("Not yet"));

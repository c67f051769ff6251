// Qdrant collections as the JavaScript pipelines write them; generate_pipelines.py says how to run this and saves them.
//
//     node generate_pipelines.mjs PIPELINE VECTORS QDRANT_URL NODE_MODULES
//
// VECTORS has each chunk of the sources with its vector; a text that is two chunks joined by a blank line is a source.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [pipeline, file, url, modules] = process.argv.slice(2);
const require = createRequire(join(modules, "index.js"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const vectors = JSON.parse(readFileSync(file, "utf-8"));
const texts = Object.keys(vectors).filter((text) => !text.startsWith("title: "));
const whole = (text) => texts.some((part) => text !== part && text.startsWith(`${part}\n\n`));
// A splitter may trim a chunk, and a store embeds a word to learn the size.
const find = (text) => vectors[text] ?? vectors[texts.find((part) => part.trim() === text.trim()) ?? texts[0]];
const fail = (text) => {
  throw new Error(`no vector of ${JSON.stringify(text)}`);
};
const sources = texts.filter(whole).map((text, number) => ({
  text,
  url: `https://docs.example.com/pages/${number}`,
  title: `Page ${number}`,
}));

const writers = {
  async langchainjs() {
    const { QdrantVectorStore } = await load("@langchain/qdrant");
    const { Document } = await load("@langchain/core/documents");
    const { Embeddings } = await load("@langchain/core/embeddings");
    const { RecursiveCharacterTextSplitter } = await load("@langchain/textsplitters");
    class Stub extends Embeddings {
      async embedDocuments(documents) {
        return documents.map(find);
      }
      async embedQuery(text) {
        return find(text);
      }
    }
    const splitter = new RecursiveCharacterTextSplitter({ chunkSize: 420, chunkOverlap: 0 });
    const pages = sources.map(
      ({ text, url: source, title }) => new Document({ pageContent: text, metadata: { source, title } }),
    );
    const documents = await splitter.splitDocuments(pages);
    await QdrantVectorStore.fromDocuments(documents, new Stub({}), { url, collectionName: pipeline });
  },

  async llamaindexts() {
    const { QdrantVectorStore } = await load("@llamaindex/qdrant");
    const { Document, SentenceSplitter, Settings, VectorStoreIndex, storageContextFromDefaults, BaseEmbedding } =
      await load("llamaindex");
    class Stub extends BaseEmbedding {
      async getTextEmbedding(text) {
        return vectors[text] ?? fail(text);
      }
    }
    Settings.embedModel = new Stub();
    Settings.nodeParser = new SentenceSplitter({ chunkSize: 130, chunkOverlap: 0, paragraphSeparator: "\n\n" });
    const vectorStore = new QdrantVectorStore({ url, collectionName: pipeline });
    const storageContext = await storageContextFromDefaults({ vectorStore });
    const documents = sources.map(
      ({ text, url: source, title }) => new Document({ id_: source, text, metadata: { url: source, title } }),
    );
    await VectorStoreIndex.fromDocuments(documents, { storageContext });
  },

  async mastra() {
    const { QdrantVector } = await load("@mastra/qdrant");
    const store = new QdrantVector({ id: "pages", url });
    const chunks = sources.flatMap(({ text, url: source, title }) =>
      texts.filter((part) => part !== text && text.includes(part)).map((part) => ({ text: part, source, title })),
    );
    await store.createIndex({ indexName: pipeline, dimension: vectors[texts[0]].length, metric: "cosine" });
    await store.upsert({ indexName: pipeline, vectors: chunks.map(({ text }) => vectors[text]), metadata: chunks });
  },
};

await fetch(`${url}/collections/${pipeline}`, { method: "DELETE" });
await writers[pipeline]();

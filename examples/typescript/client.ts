// A typed client: openapi-fetch, with the types that openapi-typescript makes of docs/openapi.json.

import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

const GOES_ON = ["queued", "running"];

// Return a client of the service at `url`. Paths, parameters, bodies and replies have their types.
export function connect(url: string, apiKey?: string) {
  const headers = apiKey ? { Authorization: `Bearer ${apiKey}` } : {};
  return createClient<paths, `application/${"" | "problem+"}json`>({ baseUrl: url, headers });
}

export type Corelane = ReturnType<typeof connect>;

// Return the body of a reply, or throw the service's sentence.
export function read<Body>(reply: { data?: Body; error?: { code: string; detail: string } }): Body {
  if (reply.data === undefined) throw new Error(`${reply.error?.code}: ${reply.error?.detail}`);
  return reply.data;
}

// Wait until a job is final, however long that takes; then yield its results, in the order of its items.
export async function* results(client: Corelane, jobId: string) {
  const path = { job_id: jobId };
  const job = () => client.GET("/v1/jobs/{job_id}", { params: { path, query: { wait: 50 } } });
  while (GOES_ON.includes(read(await job()).status));
  for (let after: string | null | undefined; after !== null; ) {
    const query = { after, limit: 1000 };
    const page = read(await client.GET("/v1/jobs/{job_id}/results", { params: { path, query } }));
    yield* page.data;
    after = page.has_more ? page.next : null;
  }
}

// Receive webhooks, verified without a package, and print each event once.
//
// Take Node 20 or later, and the secret that signs as CORELANE_WEBHOOK_SECRET:
//
//     node receive.mjs 9000

import { createServer } from "node:http";

// Return the event, or throw. Deno, Bun, Workers and browsers run this function too. `headers` has lower-case names,
// `body` is the text as it came.
async function verifyWebhook(secret, headers, body, toleranceS = 300) {
  const id = headers["webhook-id"];
  const timestamp = headers["webhook-timestamp"];
  const signatures = headers["webhook-signature"];
  if (!id || !timestamp || !signatures) throw new Error("not a signed webhook");
  if (!(Math.abs(Date.now() / 1000 - Number(timestamp)) <= toleranceS)) throw new Error("too old, or from the future");
  const bytes = (base64) => Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  const key = await crypto.subtle.importKey(
    "raw", bytes(secret.replace(/^whsec_/, "")), { name: "HMAC", hash: "SHA-256" }, false, ["verify"],
  );
  const signed = new TextEncoder().encode(`${id}.${timestamp}.${body}`);
  for (const each of signatures.split(" ")) {
    const [version, signature] = each.split(",");
    if (version === "v1" && await crypto.subtle.verify("HMAC", key, bytes(signature), signed)) return JSON.parse(body);
  }
  throw new Error("no signature matches");
}

const seen = new Set(); // ids of events that came before: keep yours in a database, for a day or two

createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  try {
    const body = Buffer.concat(chunks).toString();
    const event = await verifyWebhook(process.env.CORELANE_WEBHOOK_SECRET, request.headers, body);
    response.writeHead(204).end();
    if (!seen.has(request.headers["webhook-id"])) console.log(event.type, event.data.id, event.data.status);
    seen.add(request.headers["webhook-id"]);
  } catch (error) {
    response.writeHead(401).end(`${error.message}\n`);
  }
}).listen(Number(process.argv[2]), "127.0.0.1");

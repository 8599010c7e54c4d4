// Checks a proof of `foldlog store checkpoint --prove` or `--since`, without foldlog and the store.
//
//     node verify.mjs PROOF.json KEY [CHECKPOINT]
//
// KEY is the public key, a PEM file. CHECKPOINT is the checkpoint that you kept: without it, compare the printed root
// with the root that you kept. docs/PROOF.md says what a proof means. SHA-256 and Ed25519 are all that a verifier needs.

import { createHash, createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";

const sha256 = (...parts) => createHash("sha256").update(Buffer.concat(parts.map((part) => Buffer.from(part)))).digest();
const fromHex = (text) => Buffer.from(text, "hex");
const parent = (left, right) => sha256([1], left, right);

function check(isTrue, problem) {
  if (!isTrue) throw new Error(problem);
}

function number(value, bytes) {
  const buffer = Buffer.alloc(8);
  buffer.writeBigUInt64BE(BigInt(value));
  return buffer.subarray(8 - bytes);
}

// A checkpoint is a C2SP signed note: origin, number of leaves, root, empty line, signatures.
export function readCheckpoint(note, key) {
  const end = note.indexOf("\n\n") + 1;
  const text = note.slice(0, end);
  const [origin, size, root] = text.split("\n");
  const raw = key.export({ type: "spki", format: "der" }).subarray(-32);
  const keyId = sha256(`${origin}\n`, [1], raw).subarray(0, 4);
  const isSigned = note.slice(end + 1).split("\n").some((line) => {
    const signature = Buffer.from(line.split(" ")[2] ?? "", "base64");
    return line.startsWith(`\u2014 ${origin} `) && signature.subarray(0, 4).equals(keyId) &&
      verify(null, Buffer.from(text), key, signature.subarray(4));
  });
  check(isSigned, "the key did not sign the checkpoint");
  return { size: Number(size), root: Buffer.from(root, "base64") };
}

// RFC 9162, section 2.1.3.2: the root that follows from a leaf and its path.
export function rootOf(leafHash, index, size, path) {
  let hash = leafHash, here = index, last = size - 1;
  check(index < size, "the tree has fewer leaves");
  for (const step of path) {
    check(last > 0, "the path is too long");
    if (here % 2 || here === last) {
      hash = parent(step, hash);
      while (here % 2 === 0 && here > 0) { here /= 2; last = Math.floor(last / 2); }
    } else {
      hash = parent(hash, step);
    }
    here = Math.floor(here / 2);
    last = Math.floor(last / 2);
  }
  check(last === 0, "the path is too short");
  return hash;
}

// RFC 9162, section 2.1.4.2: both roots follow from one path.
export function checkConsistency(earlier, later, path) {
  if (earlier.size === later.size) return check(earlier.root.equals(later.root) && !path.length, "two roots for one size");
  let here = earlier.size - 1, last = later.size - 1;
  const isComplete = Number.isInteger(Math.log2(earlier.size));
  const [first, ...steps] = isComplete ? [earlier.root, ...path] : path;
  while (here % 2) { here = (here - 1) / 2; last = Math.floor(last / 2); }
  let old = first, grown = first;
  for (const step of steps) {
    check(last > 0, "the path is too long");
    if (here % 2 || here === last) {
      old = parent(step, old);
      grown = parent(step, grown);
      while (here % 2 === 0 && here > 0) { here /= 2; last = Math.floor(last / 2); }
    } else {
      grown = parent(grown, step);
    }
    here = Math.floor(here / 2);
    last = Math.floor(last / 2);
  }
  check(last === 0 && old.equals(earlier.root) && grown.equals(later.root), "the later checkpoint does not continue the earlier one");
}

export function checkEvent(proof, key) {
  const { size, root } = readCheckpoint(proof.checkpoint, key);
  const commitment = fromHex(proof.links[0][1]);
  // A redacted event has no salt any more: only its place and its fields are proved.
  if (proof.event_salt !== null) check(sha256(fromHex(proof.event_salt), proof.body).equals(commitment), "the event is not the one that was committed");
  check(proof.links[0][0].startsWith(`${proof.event} `), "the proof is of another event");
  let head = fromHex(proof.before);
  for (const [fields, committed] of proof.links) head = sha256(head, fromHex(proof.salt), `salted ${fields}\n`, fromHex(committed));
  const version = proof.event + proof.links.length;
  const leaf = sha256([0], sha256(proof.conversation), [0], number(proof.generation, 4), number(version, 8), head, fromHex(proof.ledger));
  check(rootOf(leaf, proof.leaf, size, proof.path.map(fromHex)).equals(root), "the checkpoint does not cover the event");
  const recordedAt = new Date(Number(proof.links[0][0].split(" ")[4]) / 1000).toISOString();
  const what = `event ${proof.event} of ${proof.conversation}, recorded at ${recordedAt} by the clock of the store,`;
  const known = proof.event_salt === null ? `${what} is redacted; its place is proved` : `${what} is proved:\n${proof.body}`;
  return `${known}\nroot: ${root.toString("base64")}`;
}

export function checkProof(proof, key, kept) {
  check(kept === undefined || kept.split("\n\n")[0] === proof.checkpoint.split("\n\n")[0], "the proof is for another checkpoint than the one that you kept");
  if (proof.earlier === undefined) return checkEvent(proof, key);
  const [earlier, later] = [proof.earlier, proof.checkpoint].map((note) => readCheckpoint(note, key));
  checkConsistency(earlier, later, proof.path.map(fromHex));
  return `the checkpoint with ${later.size} leaves continues the one with ${earlier.size}`;
}

if (process.argv[2]) {
  const [, , proofFile, keyFile, keptFile] = process.argv;
  try {
    const kept = keptFile && readFileSync(keptFile, "utf8");
    console.log(checkProof(JSON.parse(readFileSync(proofFile, "utf8")), createPublicKey(readFileSync(keyFile)), kept));
  } catch (error) {
    console.error(`not proved: ${error.message}`);
    process.exitCode = 1;
  }
}

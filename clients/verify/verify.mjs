// Checks a proof of `foldlog store checkpoint --prove` or `--since`, without foldlog and the store.
//
//     node verify.mjs PROOF.json KEY CHECKPOINT [CHECKPOINT]
//
// KEY is the public key, a PEM file. CHECKPOINT is the checkpoint that you kept; for a proof of --since the earlier one,
// the later one, or both. The exit status is 0 if the proof is true, 1 if not, and 2 without arguments. docs/PROOF.md
// says what a proof means. SHA-256 and Ed25519 are all that a verifier needs.

import { createHash, createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";

class NotProved extends Error {}

function check(isTrue, problem) {
  if (!isTrue) throw new NotProved(problem);
}

const sha256 = (...parts) => createHash("sha256").update(Buffer.concat(parts.map((part) => Buffer.from(part)))).digest();
const parent = (left, right) => sha256([1], left, right);
const hashes = (texts) => texts.map((text) => fromHex(text));

// Only values of the right length have one place in what is hashed.
function fromHex(text, length = 32) {
  const bytes = Buffer.from(text, "hex");
  check(bytes.length === length, `a hash or salt has ${bytes.length} bytes instead of ${length}`);
  return bytes;
}

function number(value, bytes) {
  const buffer = Buffer.alloc(8);
  buffer.writeBigUInt64BE(BigInt(value));
  return buffer.subarray(8 - bytes);
}

// An id may have halves of surrogate pairs. The store writes each with three bytes, and Node would replace it.
function utf8(text) {
  return Buffer.concat([...text].map((char) => {
    const code = char.codePointAt(0);
    const isHalf = code >= 0xd800 && code < 0xe000;
    return Buffer.from(isHalf ? [0xe0 | (code >> 12), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f)] : char);
  }));
}

// A checkpoint is a C2SP signed note: origin, number of leaves, root, empty line, signatures.
function readCheckpoint(note, key) {
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
  check(/^[1-9]\d{0,14}$/.test(size), `the checkpoint has '${size}' leaves`);
  return { size: Number(size), root: Buffer.from(root, "base64") };
}

// RFC 9162, section 2.1.3.2: the root that follows from a leaf and its path.
function rootOf(leafHash, index, size, path) {
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
function checkConsistency(earlier, later, path) {
  check(earlier.size <= later.size, "the later checkpoint has fewer leaves");
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

// The owner chose the name and the texts, which could look like lines of this program.
const escaped = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
const onOneLine = (text) => text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (char) => char.split("").map(escaped).join(""));

function checkEvent(proof, key) {
  check(typeof proof.conversation === "string" && Number.isSafeInteger(proof.event) && Number.isSafeInteger(proof.generation),
    "the conversation is not a text, or the event or generation not a number");
  const { size, root } = readCheckpoint(proof.checkpoint, key);
  const commitment = fromHex(proof.links[0][1]);
  // A redaction erased the salt and the content. The mark of the redaction has the hash of the content.
  const mark = proof.event_salt === null ? JSON.parse(proof.body).redacted : undefined;
  const hash = mark ? fromHex(mark.hash) : sha256(fromHex(proof.event_salt, 16), proof.body);
  check(hash.equals(commitment), mark ? "the mark of the redaction belongs to another event" : "the event is not the one that was committed");
  check(proof.links[0][0].startsWith(`${proof.event} `), "the proof is of another event");
  let head = fromHex(proof.before);
  for (const [fields, committed] of proof.links) head = sha256(head, fromHex(proof.salt, 16), `salted ${fields}\n`, fromHex(committed));
  const version = proof.event + proof.links.length;
  const leaf = sha256([0], sha256(utf8(proof.conversation)), [0], number(proof.generation, 4), number(version, 8), head, fromHex(proof.ledger),
    ...(proof.extent ? [fromHex(proof.extent)] : []));
  check(rootOf(leaf, proof.leaf, size, hashes(proof.path)).equals(root), "the checkpoint does not cover the event");
  const recordedAt = new Date(Number(proof.links[0][0].split(" ")[4]) / 1000).toISOString();
  const again = proof.generation ? `, number ${proof.generation + 1} of the conversations with this id` : "";
  const what = `event ${proof.event} of ${onOneLine(proof.conversation)}${again}, recorded at ${recordedAt} by the clock of the store`;
  // The owner can make a mark with the right hash.
  const known = mark
    ? `the place of ${what}, is proved, not its content: the owner says that it was redacted (${onOneLine(JSON.stringify(mark))}); ` +
      "'foldlog store verify --against' shows the receipt"
    : `${what}, is proved:\n${onOneLine(proof.body)}`;
  return `${known}\nroot: ${root.toString("base64")}`;
}

// Both checkpoints are signed, but an owner can sign any text: at least one must be the one that the auditor kept.
function checkProof(proof, key, kept) {
  const noteText = (note) => note.split("\n\n")[0];
  const ofProof = [proof.earlier ?? proof.checkpoint, proof.checkpoint].map(noteText);
  check(kept.every((own) => ofProof.includes(noteText(own))), "the proof is for another checkpoint than the one that you kept");
  if (proof.earlier === undefined) return checkEvent(proof, key);
  const [earlier, later] = [proof.earlier, proof.checkpoint].map((note) => readCheckpoint(note, key));
  checkConsistency(earlier, later, hashes(proof.path));
  const [ofEarlier, ofLater] = ofProof.map((text) => kept.map(noteText).includes(text) ? "you kept" : "only the owner showed");
  return `the checkpoint with ${later.size} leaves, which ${ofLater}, continues the one with ${earlier.size}, which ${ofEarlier}\n` +
    "that the store still has its conversations is not proved: 'foldlog store verify --against' compares them";
}

function read(path, parse, form) {
  try {
    return parse(readFileSync(path, "utf8"));
  } catch {
    throw new NotProved(`${path} cannot be read as ${form}`);
  }
}

const [proofFile, keyFile, ...keptFiles] = process.argv.slice(2);
if (!keptFiles.length || keptFiles.length > 2) {
  console.error("usage: node verify.mjs PROOF.json PUBLIC-KEY.pem CHECKPOINT [CHECKPOINT]\nCHECKPOINT is the file that you kept.");
  process.exitCode = 2;
} else {
  try {
    const key = read(keyFile, createPublicKey, "a public key in PEM");
    check(key.asymmetricKeyType === "ed25519", `${keyFile} is not an Ed25519 key`);
    const kept = keptFiles.map((file) => read(file, String, "a checkpoint"));
    console.log(checkProof(read(proofFile, JSON.parse, "JSON"), key, kept));
  } catch (error) {
    console.error(`not proved: ${error instanceof NotProved ? error.message : `${proofFile} does not have the form of a proof`}`);
    process.exitCode = 1;
  }
}

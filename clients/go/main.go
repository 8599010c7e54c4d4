// A client made from openapi.json alone: each answer must have a status that its operation lists, and a body with the
// members that the schema of this status requires. scripts/test-openapi runs it.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
)

type M = map[string]any

var (
	doc                                M
	base, token                        string
	asked, guesses, unlisted, streamed int
	seen                               = map[string]int{}
)

func find(id string) (string, string, M) {
	for path, methods := range doc["paths"].(M) {
		for method, op := range methods.(M) {
			if op.(M)["operationId"] == id {
				return strings.ToUpper(method), path, op.(M)
			}
		}
	}
	panic("no operation " + id)
}

func deref(s M) M {
	for {
		ref, ok := s["$ref"].(string)
		if !ok {
			return s
		}
		at := any(doc)
		for _, part := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
			at = at.(M)[part]
		}
		s = at.(M)
	}
}

func problem(format string, args ...any) { guesses++; fmt.Printf("GUESS: "+format+"\n", args...) }

// check compares a value with a schema: types, enums, required members, references, arrays and unions.
func check(where string, s M, v any) bool {
	s = deref(s)
	for _, union := range []string{"anyOf", "oneOf"} {
		if list, ok := s[union].([]any); ok {
			for _, each := range list {
				if check("", each.(M), v) {
					return true
				}
			}
			if where != "" {
				problem("%s fits no form: %v", where, v)
			}
			return false
		}
	}
	kinds := []any{}
	switch t := s["type"].(type) {
	case string:
		kinds = []any{t}
	case []any:
		kinds = t
	default:
		return true
	}
	kind := "null"
	switch x := v.(type) {
	case bool:
		kind = "boolean"
	case string:
		kind = "string"
	case json.Number:
		kind = "number"
		if !strings.ContainsAny(x.String(), ".eE") {
			kind = "integer"
		}
	case []any:
		kind = "array"
	case M:
		kind = "object"
	}
	fits := false
	for _, k := range kinds {
		fits = fits || k == kind || (k == "number" && kind == "integer")
	}
	if !fits {
		if where != "" {
			problem("%s is %s, and the document says %v", where, kind, kinds)
		}
		return false
	}
	if object, ok := v.(M); ok {
		required, _ := s["required"].([]any)
		for _, name := range required {
			if _, has := object[name.(string)]; !has {
				if where != "" {
					problem("%s lacks %v", where, name)
				}
				return false
			}
		}
		properties, _ := s["properties"].(M)
		for name, member := range object {
			if schema, ok := properties[name].(M); ok {
				if !check(join(where, name), schema, member) {
					return false
				}
			} else if s["additionalProperties"] == false {
				if where != "" {
					problem("%s has %s, which the document does not name", where, name)
				}
				return false
			}
		}
	}
	if list, ok := v.([]any); ok {
		if items, ok := s["items"].(M); ok {
			for _, each := range list {
				if !check(join(where, "[]"), items, each) {
					return false
				}
			}
		}
	}
	return true
}

func join(where, name string) string {
	if where == "" {
		return ""
	}
	return where + "." + name
}

func send(id string, params M, body any, headers map[string]string) (*http.Response, M) {
	method, path, op := find(id)
	query := url.Values{}
	for _, each := range op["parameters"].([]any) {
		p := each.(M)
		name := p["name"].(string)
		v, has := params[name]
		if !has {
			continue
		}
		if p["in"] == "path" {
			path = strings.Replace(path, "{"+name+"}", url.PathEscape(fmt.Sprint(v)), 1)
		} else if p["in"] == "query" {
			query.Set(name, fmt.Sprint(v))
		}
		delete(params, name)
	}
	if len(params) > 0 {
		problem("%s takes no %v", id, params)
	}
	var content io.Reader
	if body != nil {
		data, _ := json.Marshal(body)
		content = bytes.NewReader(data)
	}
	request, _ := http.NewRequest(method, base+path+"?"+query.Encode(), content)
	request.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		panic(err)
	}
	asked++
	return answer, op
}

// call sends a request, and checks the answer. Without an expected status, each status that the document lists is right.
func call(id string, params M, body any, headers map[string]string, expected string) M {
	answer, op := send(id, params, body, headers)
	defer answer.Body.Close()
	data, _ := io.ReadAll(answer.Body)
	status := fmt.Sprint(answer.StatusCode)
	seen[id+" "+status]++
	response, ok := op["responses"].(M)[status].(M)
	if !ok {
		unlisted++
		problem("%s answers %s, which the document does not list: %s", id, status, data)
		return nil
	}
	if expected != "" && status != expected {
		problem("%s answers %s, expected %s: %s", id, status, expected, data)
	}
	response = deref(response)
	contents, _ := response["content"].(M)
	media := strings.Split(answer.Header.Get("Content-Type"), ";")[0]
	if contents == nil {
		if len(data) > 0 {
			problem("%s %s has a body", id, status)
		}
		return nil
	}
	described, ok := contents[media].(M)
	if !ok {
		problem("%s %s answers %s, which is not listed", id, status, media)
		return nil
	}
	named, _ := response["headers"].(M)
	for name, header := range named {
		if header.(M)["required"] == true && answer.Header.Get(name) == "" {
			problem("%s %s lacks the header %s", id, status, name)
		}
	}
	if media != "application/json" && media != "application/problem+json" {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value M
	if err := decoder.Decode(&value); err != nil {
		problem("%s %s: %v", id, status, err)
	}
	check(id+" "+status, described["schema"].(M), value)
	return value
}

func stream(id string, params M, headers map[string]string, want int) (last string) {
	headers["Accept"] = "text/event-stream"
	answer, op := send(id, params, nil, headers)
	defer answer.Body.Close()
	response := deref(op["responses"].(M)[fmt.Sprint(answer.StatusCode)].(M))
	if _, ok := response["content"].(M)["text/event-stream"]; !ok {
		problem("%s does not list text/event-stream", id)
	}
	event := ""
	lines := bufio.NewScanner(answer.Body)
	for want > 0 && lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			last = value
		case "event":
			event = value
		case "data":
			if event == "event" {
				decoder := json.NewDecoder(strings.NewReader(value))
				decoder.UseNumber()
				var recorded M
				decoder.Decode(&recorded)
				check(id+" frame", M{"$ref": "#/components/schemas/RecordedEvent"}, recorded)
				streamed++
				want--
			}
		case "retry", "":
		default:
			problem("%s: line %q", id, lines.Text())
		}
	}
	return last
}

func main() {
	base, token = os.Args[2], os.Args[3]
	data, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	json.Unmarshal(data, &doc)
	none := map[string]string{}
	msg := func(text string) M { return M{"messages": []M{{"role": "user", "content": text}}} }
	c := M{}
	at := func(more M) M {
		all := M{"conversation": c["id"]}
		for k, v := range more {
			all[k] = v
		}
		return all
	}
	call("create_conversation", M{}, M{"id": "go", "attributes": M{"user": "ann"}}, map[string]string{"Idempotency-Key": "create"}, "201")
	c["id"] = "go"
	call("append_events", at(nil), msg("Pay Ann."), map[string]string{"Idempotency-Key": "k"}, "201")
	call("append_events", at(nil), msg("Pay Ann."), map[string]string{"Idempotency-Key": "k"}, "201")
	call("append_events", at(nil), msg("Pay Bob."), map[string]string{"Idempotency-Key": "k"}, "409")
	call("append_events", at(nil), msg("x"), map[string]string{"If-Match": `"99"`}, "409")
	call("append_events", at(nil), M{"more": 1}, none, "400")
	call("append_events", at(nil), M{}, none, "422")
	lease := call("take_lease", at(nil), M{"worker": "w1", "ttl_s": 30}, none, "201")
	call("take_lease", at(nil), M{"worker": "w2"}, none, "423")
	held := map[string]string{"Foldlog-Lease": lease["token"].(string)}
	wrong := map[string]string{"Foldlog-Lease": "ffff"}
	call("renew_lease", at(nil), M{"ttl_s": 30}, held, "200")
	call("renew_lease", at(nil), M{}, wrong, "412")
	prepared := call("prepare", at(nil), M{"dialect": "openai"}, held, "201")
	tool := M{"id": "k1", "type": "function", "function": M{"name": "pay", "arguments": `{"to": "Ann"}`}}
	replied := call("append_reply", at(nil), M{"reply": M{"role": "assistant", "content": nil, "tool_calls": []M{tool}}, "model_request": prepared["model_request"]}, held, "201")
	event := replied["recorded"].([]any)[0].(M)["id"]
	call("read_open_calls", at(nil), nil, none, "200")
	call("begin_effect", at(M{"event": event}), M{}, none, "400")
	call("begin_effect", at(M{"event": event}), M{"needs_approval": true}, held, "403")
	call("ask_approval", at(M{"event": event}), M{"to": "boss"}, none, "201")
	call("decide", at(M{"event": event}), M{"approved": true, "by": "boss"}, none, "201")
	begun := call("begin_effect", at(M{"event": event}), M{"needs_approval": true}, held, "200")
	call("end_effect", at(M{"event": event}), M{"outcome": "paid"}, held, "201")
	call("settle_effect", at(M{"key": begun["key"]}), M{"outcome": "paid"}, none, "")
	call("settle_effect", at(M{"key": "unknown"}), M{"outcome": "paid"}, none, "422")
	call("read_effects", at(nil), nil, none, "200")
	call("append_tool_result", at(nil), M{"call": "k9", "content": "x"}, none, "422")
	call("close_open_calls", at(nil), M{}, held, "200")
	call("read_conversation", at(nil), nil, none, "200")
	call("release_lease", at(nil), nil, held, "204")
	for _, dialect := range []string{"openai", "anthropic", "responses"} {
		call("read_view", at(M{"dialect": dialect, "at": 2}), nil, none, "200")
	}
	call("read_view", at(M{"at": 999}), nil, none, "404")
	call("why", at(M{"event": 1}), nil, none, "200")
	call("why", at(M{"event": 999}), nil, none, "404")
	call("difference", at(M{"before": 1, "after": 2}), nil, none, "200")
	call("dropped", at(nil), nil, none, "409")
	call("request_condensation", at(nil), M{"reason": "full"}, none, "201")
	call("condense", at(nil), M{}, none, "")
	call("dropped", at(nil), nil, none, "")
	call("read_events", at(M{"start": 0}), nil, none, "200")
	call("change_documents", at(nil), M{"plan": M{"step": 1}}, none, "200")
	call("read_documents", at(nil), nil, none, "200")
	call("change_attributes", at(nil), M{"attributes": M{"title": "t"}}, none, "200")
	call("change_attributes", at(nil), M{"attributes": M{"title": 1.5}}, none, "400")
	call("read_attributes", at(nil), nil, none, "200")
	call("list_conversations", M{"where": "user=ann", "limit": 1}, nil, none, "200")
	call("list_unfinished", M{}, nil, none, "200")
	call("search_events", M{"words": "Ann"}, nil, none, "200")
	call("search_events", M{"words": "!"}, nil, none, "422")
	call("fork", at(nil), M{"id": "go-2", "at": 2}, none, "201")
	call("fork", at(nil), M{"id": "go-3", "at": 999}, none, "422")
	call("append_together", M{}, M{"appends": []M{{"conversation": "a", "events": []M{{"kind": "message", "source": "user", "content": "x"}}, "expected_version": 0}, {"conversation": "b", "events": []M{{"kind": "message", "source": "user", "content": "y"}}, "expected_version": 0}}}, none, "201")
	call("append_records", M{"conversation": "r"}, M{"format": "openai-responses", "records": []M{{"type": "message", "role": "user", "content": "hi"}}}, none, "201")
	call("read_records", M{"conversation": "r", "format": "openai-responses"}, nil, none, "200")
	call("read_records", M{"conversation": "r", "format": "none"}, nil, none, "422")
	call("read_stats", at(M{"with_children": true}), nil, none, "200")
	call("read_store_stats", M{}, nil, none, "200")
	call("export", at(M{"format": "openai-chat"}), nil, none, "200")
	call("report", at(nil), nil, none, "200")
	call("find_secrets", at(nil), nil, none, "")
	call("replay", at(nil), nil, none, "200")
	call("read_fact", at(M{"words": "Ann"}), nil, none, "200")
	call("read_hand_overs", at(M{"words": "Ann"}), nil, none, "200")
	call("read_hand_overs", at(nil), nil, none, "422")
	call("compare_conversations", at(M{"other": "go-2"}), nil, none, "200")
	call("compare_conversations", at(M{"other": "a"}), nil, none, "200")
	call("recall", at(nil), M{"arguments": M{"query": "Ann"}}, none, "200")
	call("read_recall_tool", at(M{"dialect": "anthropic"}), nil, none, "200")
	call("follow_conversation", at(M{"after": "0", "wait_s": 1}), nil, none, "200")
	call("follow_conversation", at(M{"after": "x"}), nil, none, "400")
	call("follow_store", M{"after": "0"}, nil, none, "200")
	call("follow_store", M{"after": "1.1"}, nil, none, "409")
	last := stream("follow_conversation", at(nil), map[string]string{}, 2)
	stream("follow_conversation", at(nil), map[string]string{"Last-Event-ID": last}, 1)
	stream("follow_store", M{}, map[string]string{}, 3)
	call("retract", at(M{}), M{"version": 2}, none, "201")
	call("retract", at(M{}), M{"version": 999}, none, "422")
	call("redact", at(nil), M{"events": []int{1}, "reason": "asked"}, none, "201")
	call("redact", at(nil), M{"events": []int{999}, "reason": "asked"}, none, "422")
	call("create_read_token", at(nil), M{"seconds": 60}, none, "201")
	call("erase", at(nil), M{"reason": "asked"}, none, "409")
	call("erase", at(nil), M{"reason": "asked", "with_forks": true}, none, "200")
	call("read_conversation", at(nil), nil, none, "410")
	call("list_tombstones", M{}, nil, none, "200")
	call("read_conversation", M{"conversation": "nobody"}, nil, none, "404")
	token = "unknown"
	call("read_conversation", at(nil), nil, none, "401")
	left := 0
	for _, methods := range doc["paths"].(M) {
		for _, op := range methods.(M) {
			has := false
			for key := range seen {
				has = has || strings.HasPrefix(key, op.(M)["operationId"].(string)+" ")
			}
			if !has {
				left++
				fmt.Println("not asked:", op.(M)["operationId"])
			}
		}
	}
	fmt.Printf("%d requests, %d kinds of answers, %d frames: %d statuses not listed, %d guesses; %d operations not asked\n", asked, len(seen), streamed, unlisted, guesses, left)
	if guesses > 0 || left > 0 {
		os.Exit(1)
	}
}

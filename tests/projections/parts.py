"""Parts of a content, as servers and logs write them."""

SIGNED = {"type": "thinking", "thinking": "hm", "signature": "sig"}
PDF = {"type": "file", "file": {"filename": "a.pdf", "file_data": b"%PDF-1.4"}}
UPLOADED = {"type": "anthropic", "block": {"type": "container_upload", "file_id": "file_1"}}


def text(content, **more):
    return {"type": "text", "text": content, **more}


def image(url="data:image/png;base64,iVBORw0KGgo="):
    return {"type": "image_url", "image_url": {"url": url}}


def document(data, kind="base64", media_type="application/pdf"):
    return {"type": "document", "source": {"type": kind, "media_type": media_type, "data": data}}


FOUND = {
    "type": "search_result",
    "source": "https://x",
    "title": "Tides",
    "content": [text("4 m"), text("2 m")],
}
SEARCHED = {
    "type": "server_tool",
    "blocks": [
        {
            "type": "server_tool_use",
            "id": "srvtoolu_1",
            "name": "web_search",
            "input": {"query": "tides"},
        },
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [{"type": "web_search_result"}],
        },
    ],
}
MCP = {
    "type": "server_tool",
    "blocks": [
        {
            "type": "mcp_tool_use",
            "id": "mcptoolu_1",
            "name": "echo",
            "server_name": "x",
            "input": {"say": "hi"},
        },
        {
            "type": "mcp_tool_result",
            "tool_use_id": "mcptoolu_1",
            "is_error": False,
            "content": [text("ebb")],
        },
    ],
}

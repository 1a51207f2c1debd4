// A server and a client of the Go SDK, github.com/modelcontextprotocol/go-sdk.
//
//	gosdk serve SCHEMA               the server at a loopback port, which it prints as JSON; it ends when its input does
//	gosdk stdio SCHEMA               the same server over stdio
//	gosdk client REVISION URLS CALLS the client at every server: an URL, or a list that is a command. It prints the
//	                                 answers as JSON. REVISION '' is the newest.
//
// SCHEMA is the file with the input schema of the tool `book`.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var about = &mcp.Implementation{Name: "go", Version: "1"}

func equip(schema string) (*mcp.Server, error) {
	text, err := os.ReadFile(schema)
	if err != nil {
		return nil, err
	}
	server := mcp.NewServer(about, nil)
	book := &mcp.Tool{Name: "book", Description: "Orders a book.", InputSchema: json.RawMessage(text)}
	mcp.AddTool(server, book, func(_ context.Context, _ *mcp.CallToolRequest, in map[string]any) (*mcp.CallToolResult, any, error) {
		told, err := json.Marshal(in)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(told)}}}, nil, err
	})
	fail := &mcp.Tool{Name: "fail", Description: "Fails with a reason."}
	mcp.AddTool(server, fail, func(_ context.Context, _ *mcp.CallToolRequest, in struct {
		Reason string `json:"reason"`
	}) (*mcp.CallToolResult, any, error) {
		return nil, nil, errors.New("the tool says: " + in.Reason)
	})
	return server, nil
}

func serve(schema string) error {
	server, err := equip(schema)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	go http.Serve(listener, mux)
	fmt.Printf("{\"go\": %d}\n", listener.Addr().(*net.TCPAddr).Port)
	io.Copy(io.Discard, os.Stdin)
	return nil
}

func attempt(ctx context.Context, session *mcp.ClientSession, call []json.RawMessage) map[string]any {
	var name string
	if err := json.Unmarshal(call[0], &name); err != nil {
		return map[string]any{"raised": err.Error()}
	}
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: call[1]})
	if err != nil {
		return map[string]any{"raised": err.Error()}
	}
	texts := []string{}
	for _, part := range result.Content {
		if text, ok := part.(*mcp.TextContent); ok {
			texts = append(texts, text.Text)
		}
	}
	return map[string]any{"error": result.IsError, "text": strings.Join(texts, "\n")}
}

func visit(revision string, target json.RawMessage, calls [][]json.RawMessage) map[string]any {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Second)
	defer cancel()
	var transport mcp.Transport
	var url string
	var words []string
	if json.Unmarshal(target, &url) == nil {
		transport = &mcp.StreamableClientTransport{Endpoint: url}
	} else if json.Unmarshal(target, &words) == nil {
		transport = &mcp.CommandTransport{Command: exec.Command(words[0], words[1:]...)}
	}
	session, err := mcp.NewClient(about, nil).Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		return map[string]any{"broke": err.Error()}
	}
	defer session.Close()
	names := []string{}
	for tool, err := range session.Tools(ctx, nil) {
		if err != nil {
			return map[string]any{"broke": err.Error()}
		}
		names = append(names, tool.Name)
	}
	answers := []any{}
	for _, call := range calls {
		answers = append(answers, attempt(ctx, session, call))
	}
	return map[string]any{"tools": names, "calls": answers, "revision": session.InitializeResult().ProtocolVersion}
}

func ask(revision, targets, calls string) error {
	var urls map[string]json.RawMessage
	var wanted map[string][][]json.RawMessage
	if err := errors.Join(json.Unmarshal([]byte(targets), &urls), json.Unmarshal([]byte(calls), &wanted)); err != nil {
		return err
	}
	told := map[string]any{}
	for name, target := range urls {
		told[name] = visit(revision, target, wanted[name])
	}
	return json.NewEncoder(os.Stdout).Encode(told)
}

func run(words []string) error {
	switch words[0] {
	case "serve":
		return serve(words[1])
	case "stdio":
		server, err := equip(words[1])
		if err != nil {
			return err
		}
		return server.Run(context.Background(), &mcp.StdioTransport{})
	default:
		return ask(words[1], words[2], words[3])
	}
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Go's net/http, answering with what it reads of a request: cookies, query, form and files. Prints its port as JSON, and
// ends when its standard input does.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func pairs(values map[string][]string) [][2]string {
	found := [][2]string{}
	for name, each := range values {
		for _, value := range each {
			found = append(found, [2]string{name, value})
		}
	}
	return found
}

func main() {
	http.HandleFunc("/", func(response http.ResponseWriter, request *http.Request) {
		cookies := [][2]string{}
		for _, cookie := range request.Cookies() {
			cookies = append(cookies, [2]string{cookie.Name, cookie.Value})
		}
		request.ParseMultipartForm(1 << 20)
		files := []string{}
		if request.MultipartForm != nil {
			for name := range request.MultipartForm.File {
				files = append(files, name)
			}
		}
		json.NewEncoder(response).Encode(map[string]any{
			"cookies": cookies, "query": pairs(request.URL.Query()), "form": pairs(request.PostForm), "files": files,
		})
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("{\"go\": %d}\n", listener.Addr().(*net.TCPAddr).Port)
	go http.Serve(listener, nil)
	io.Copy(io.Discard, os.Stdin)
}

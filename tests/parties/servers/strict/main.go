// A service as Go programs are written: encoding/json with DisallowUnknownFields, strconv for path and query, and 400
// for everything that these do not take. It prints its port as JSON and ends when its input does.
package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

//go:embed openapi.json
var description []byte

type Account struct {
	Owner    string            `json:"owner"`
	Currency string            `json:"currency"`
	Limit    *int64            `json:"limit,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Contact  *struct {
		Email string `json:"email"`
		Phone string `json:"phone,omitempty"`
	} `json:"contact,omitempty"`
}

type Change struct {
	Owner *string `json:"owner,omitempty"`
	Limit *int64  `json:"limit,omitempty"`
}

type Transfer struct {
	From   int64   `json:"from"`
	To     int64   `json:"to"`
	Amount float64 `json:"amount"`
	Note   string  `json:"note,omitempty"`
	Split  []struct {
		Tag   string `json:"tag"`
		Share int    `json:"share"`
	} `json:"split,omitempty"`
}

// strictly reads one JSON value without unknown members, and nothing behind it.
func strictly(body io.Reader, into any) error {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("something stands behind the value")
	}
	return nil
}

// only says which names of a query nobody knows.
func only(query url.Values, names ...string) error {
	known := map[string]bool{}
	for _, name := range names {
		known[name] = true
	}
	for name := range query {
		if !known[name] {
			return fmt.Errorf("unknown query parameter %q", name)
		}
	}
	return nil
}

func number(text string) error {
	if text == "" {
		return nil
	}
	_, err := strconv.ParseInt(text, 10, 64)
	return err
}

func flag(text string) error {
	if text == "" {
		return nil
	}
	_, err := strconv.ParseBool(text)
	return err
}

func day(text string) error {
	if text == "" {
		return nil
	}
	_, err := time.Parse(time.DateOnly, text)
	return err
}

// served makes a handler of checks, which all have to pass.
func served(checks ...func(*http.Request) error) http.HandlerFunc {
	return func(answer http.ResponseWriter, request *http.Request) {
		answer.Header().Set("Content-Type", "application/json")
		for _, check := range checks {
			if err := check(request); err != nil {
				answer.WriteHeader(http.StatusBadRequest)
				json.NewEncoder(answer).Encode(map[string]string{"error": err.Error()})
				return
			}
		}
		io.WriteString(answer, `{"done":true}`)
	}
}

func id(request *http.Request) error { return number(request.PathValue("id")) }

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /openapi.json", func(answer http.ResponseWriter, _ *http.Request) {
		answer.Header().Set("Content-Type", "application/json")
		answer.Write(description)
	})
	nothing := func(request *http.Request) error { return only(request.URL.Query()) }
	mux.HandleFunc("POST /accounts", served(nothing, func(request *http.Request) error {
		account := Account{}
		if err := strictly(request.Body, &account); err != nil {
			return err
		}
		if account.Owner == "" || len(account.Currency) != 3 {
			return errors.New("owner or currency is missing")
		}
		return nil
	}))
	mux.HandleFunc("GET /accounts/{id}", served(id, func(request *http.Request) error {
		query := request.URL.Query()
		return errors.Join(only(query, "at", "full"), day(query.Get("at")), flag(query.Get("full")))
	}))
	mux.HandleFunc("PATCH /accounts/{id}", served(id, func(request *http.Request) error {
		query := request.URL.Query()
		return errors.Join(only(query, "notify"), flag(query.Get("notify")), strictly(request.Body, &Change{}))
	}))
	mux.HandleFunc("DELETE /accounts/{id}", served(id, nothing))
	mux.HandleFunc("GET /entries", served(func(request *http.Request) error {
		query := request.URL.Query()
		for _, from := range query["account"] {
			if err := number(from); err != nil {
				return err
			}
		}
		if query.Get("from") == "" || len(query["from"]) > 1 || len(query["limit"]) > 1 {
			return errors.New("from is missing, or a parameter stands twice")
		}
		return errors.Join(only(query, "account", "from", "limit"), day(query.Get("from")), number(query.Get("limit")))
	}))
	mux.HandleFunc("POST /transfers", served(nothing, func(request *http.Request) error {
		transfer := Transfer{}
		if err := strictly(request.Body, &transfer); err != nil {
			return err
		}
		if transfer.From == 0 || transfer.To == 0 || transfer.Amount <= 0 {
			return errors.New("from, to or amount is missing")
		}
		return nil
	}))

	listening, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("{\"ledger\": %d}\n", listening.Addr().(*net.TCPAddr).Port)
	go http.Serve(listening, mux)
	io.Copy(io.Discard, os.Stdin)
}

// Calls Go decoders and frameworks with the wrong arguments of cases.json and prints their answers, one JSON object a
// line. Needs gin, echo, huma and validator in a throw-away module. Usage: go run . cases.json
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/gin-gonic/gin"
	"github.com/go-playground/validator/v10"
	"github.com/labstack/echo/v4"
)

type Place struct {
	Lat  *float64 `json:"lat" binding:"required" validate:"required"`
	Name string   `json:"name,omitempty"`
}

type Stop struct {
	Lat float64 `json:"lat,omitempty"`
}

type WeatherRequest struct {
	Lat    *float64 `json:"lat" binding:"required" validate:"required"`
	Lon    *float64 `json:"lon" binding:"required" validate:"required"`
	Days   int      `json:"days,omitempty" binding:"omitempty,min=1,max=14" validate:"omitempty,min=1,max=14" minimum:"1" maximum:"14"`
	Units  string   `json:"units,omitempty" binding:"omitempty,oneof=metric imperial" validate:"omitempty,oneof=metric imperial" enum:"metric,imperial"`
	City   string   `json:"city,omitempty" binding:"omitempty,min=2" validate:"omitempty,min=2" minLength:"2"`
	Email  string   `json:"email,omitempty" binding:"omitempty,email" validate:"omitempty,email" format:"email"`
	Alerts bool     `json:"alerts,omitempty"`
	Tags   []string `json:"tags,omitempty"`
	Place  *Place   `json:"place,omitempty"`
	Stops  []Stop   `json:"stops,omitempty"`
}

var versions = map[string]string{"go": strings.TrimPrefix(runtime.Version(), "go")}

func row(dialect, name string, status int, contentType, body string, packages ...string) {
	if status < 400 {
		return
	}
	used := map[string]string{"go": versions["go"]}
	for _, one := range packages {
		used[one] = versions[one]
	}
	text, _ := json.Marshal(map[string]any{"dialect": dialect, "case": name, "status": status,
		"content_type": contentType, "body": body, "how": "ran", "versions": used})
	fmt.Println(string(text))
}

func ask(handler http.Handler, dialect, name string, sent []byte, packages ...string) {
	request := httptest.NewRequest("POST", "/weather", bytes.NewReader(sent))
	request.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	row(dialect, name, answer.Code, answer.Header().Get("Content-Type"), answer.Body.String(), packages...)
}

// decoding answers the decoder's own words, as most handlers do.
func decoding(strict bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request WeatherRequest
		decoder := json.NewDecoder(r.Body)
		if strict {
			decoder.DisallowUnknownFields()
		}
		if err := decoder.Decode(&request); err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		if err := validator.New().Struct(request); err != nil {
			http.Error(w, err.Error(), 400)
		}
	})
}

// anonymous decodes into a struct without a name: the field's path then starts with a dot or stands alone.
func anonymous(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Lat   float64
		Place struct{ Lat float64 }
		Tags  []string
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(400)
		_ = json.NewEncoder(w).Encode(map[string]any{"success": false, "message": "invalid request body: " + err.Error()})
	}
}

// mapped decodes into a map: the error has no field at all.
func mapped(w http.ResponseWriter, r *http.Request) {
	var request map[string]float64
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), 400)
	}
}

func main() {
	info, _ := debug.ReadBuildInfo()
	for _, one := range info.Deps {
		versions[one.Path] = one.Version
	}
	text, _ := os.ReadFile(os.Args[1])
	var cases map[string]json.RawMessage
	if err := json.Unmarshal(text, &cases); err != nil {
		panic(err)
	}
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.POST("/weather", func(c *gin.Context) {
		var request WeatherRequest
		if err := c.ShouldBindJSON(&request); err != nil {
			c.JSON(400, gin.H{"error": err.Error()})
		}
	})
	server := echo.New()
	server.POST("/weather", func(c echo.Context) error {
		var request WeatherRequest
		if err := c.Bind(&request); err != nil {
			return err
		}
		if err := validator.New().Struct(request); err != nil {
			return echo.NewHTTPError(422, err.Error())
		}
		return nil
	})
	mux := http.NewServeMux()
	api := humago.New(mux, huma.DefaultConfig("weather", "1"))
	huma.Post(api, "/weather", func(context.Context, *struct{ Body WeatherRequest }) (*struct{}, error) { return nil, nil })
	for name, sent := range cases {
		ask(decoding(false), "go-json", name+"/decode", sent)
		ask(decoding(true), "go-json", name+"/strict", sent)
		ask(http.HandlerFunc(anonymous), "go-json", name+"/anonymous", sent)
		ask(http.HandlerFunc(mapped), "go-json", name+"/map", sent)
		ask(router, "go-validator", name+"/gin", sent, "github.com/gin-gonic/gin")
		ask(server, "go-json", name+"/echo", sent, "github.com/labstack/echo/v4")
		ask(mux, "problem-details", name+"/huma", sent, "github.com/danielgtaylor/huma/v2")
	}
	for name, broken := range map[string]string{"cut": `{"lat": 1, "lo`, "comma": `{"lat": 1,}`, "none": ``} {
		ask(decoding(false), "go-json", name+"/decode", []byte(broken))
	}
}

//! Calls serde_json and axum with the wrong arguments of cases.json and prints their answers, one JSON object a line.
//! Needs axum, serde (derive), serde_json and tokio in a throw-away crate. Usage: cargo run -- cases.json
use axum::{body::to_bytes, extract::FromRequest, http::Request, response::IntoResponse, Json};
use serde::Deserialize;

#[derive(Deserialize)]
#[allow(dead_code)]
#[serde(rename_all = "lowercase")]
enum Units {
    Metric,
    Imperial,
}

#[derive(Deserialize)]
#[allow(dead_code)]
struct Place {
    lat: f64,
    name: Option<String>,
}

#[derive(Deserialize)]
#[allow(dead_code)]
struct Stop {
    lat: Option<f64>,
}

#[derive(Deserialize)]
#[allow(dead_code)]
#[serde(deny_unknown_fields)]
struct WeatherRequest {
    lat: f64,
    lon: f64,
    days: Option<u8>,
    units: Option<Units>,
    city: Option<String>,
    email: Option<String>,
    alerts: Option<bool>,
    tags: Option<Vec<String>>,
    place: Option<Place>,
    stops: Option<Vec<Stop>>,
}

fn row(dialect: &str, name: String, status: u16, content_type: &str, body: &str, package: &str) {
    let sample = serde_json::json!({"dialect": dialect, "case": name, "status": status, "content_type": content_type,
        "body": body, "how": "ran", "versions": {package: "see Cargo.lock"}});
    println!("{sample}");
}

#[tokio::main]
async fn main() {
    let text = std::fs::read_to_string(std::env::args().nth(1).unwrap()).unwrap();
    let cases: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    for (name, sent) in cases {
        let body = sent.to_string();
        if let Err(error) = serde_json::from_str::<WeatherRequest>(&body) {
            let answer = serde_json::json!({"error": error.to_string()}).to_string();
            row("serde", format!("{name}/serde"), 400, "application/json", &answer, "serde_json");
        }
        let request = Request::post("/").header("content-type", "application/json").body(body.into()).unwrap();
        if let Err(rejection) = Json::<WeatherRequest>::from_request(request, &()).await {
            let answer = rejection.into_response();
            let status = answer.status().as_u16();
            let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
            let bytes = to_bytes(answer.into_body(), 65536).await.unwrap();
            row("serde", format!("{name}/axum"), status, &kind, std::str::from_utf8(&bytes).unwrap(), "axum");
        }
    }
}

// Calls Spring MVC with the wrong arguments of cases.json and prints its answers, one JSON object a line.
// Needs spring-boot-starter-web and -validation in a throw-away project (package weather).
// Usage: mvn compile exec:java -Dexec.mainClass=weather.Weather -Dexec.args=cases.json
package weather;

import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import jakarta.validation.Valid;
import jakarta.validation.constraints.*;
import java.net.URI;
import java.net.http.*;
import java.nio.file.*;
import java.util.*;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootVersion;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.http.ResponseEntity;
import org.springframework.http.converter.HttpMessageNotReadableException;
import org.springframework.validation.FieldError;
import org.springframework.web.bind.MethodArgumentNotValidException;
import org.springframework.web.bind.annotation.*;

@SpringBootApplication
public class Weather {
  public enum Units { metric, imperial }

  public record Place(@NotNull Double lat, String name) {}

  public record Stop(Double lat) {}

  public record WeatherRequest(
      @NotNull Double lat,
      @NotNull Double lon,
      @Min(1) @Max(14) Integer days,
      Units units,
      @Size(min = 2) String city,
      @Email String email,
      Boolean alerts,
      List<String> tags,
      @Valid Place place,
      @Valid List<Stop> stops) {}

  @RestController
  public static class Plain {
    @PostMapping("/plain")
    Map<String, Object> plain(@Valid @RequestBody WeatherRequest request) {
      return Map.of();
    }
  }

  @RestController
  public static class Handled {
    @PostMapping("/handled")
    Map<String, Object> handled(@Valid @RequestBody WeatherRequest request) {
      return Map.of();
    }

    // The two handlers that most tutorials show: the field map, and the reader's own words.
    @ExceptionHandler
    ResponseEntity<Map<String, String>> invalid(MethodArgumentNotValidException error) {
      Map<String, String> found = new TreeMap<>();
      for (FieldError one : error.getBindingResult().getFieldErrors()) found.put(one.getField(), one.getDefaultMessage());
      return ResponseEntity.badRequest().body(found);
    }

    @ExceptionHandler
    ResponseEntity<Map<String, String>> unreadable(HttpMessageNotReadableException error) {
      return ResponseEntity.badRequest().body(Map.of("error", "Bad Request", "message", error.getMessage()));
    }
  }

  @RestController
  public static class Cause {
    @PostMapping("/cause")
    Map<String, Object> cause(@Valid @RequestBody WeatherRequest request) {
      return Map.of();
    }

    @ExceptionHandler
    ResponseEntity<Map<String, String>> unreadable(HttpMessageNotReadableException error) {
      return ResponseEntity.badRequest().body(Map.of("message", String.valueOf(error.getCause().getMessage())));
    }
  }

  public static void main(String[] args) throws Exception {
    ObjectMapper mapper = new ObjectMapper();
    JsonNode cases = mapper.readTree(Files.readString(Path.of(args[0])));
    for (String setting : List.of("defaults", "attributes", "problems")) {
      List<String> settings = new ArrayList<>(List.of("--server.port=0", "--spring.main.banner-mode=off",
          "--logging.level.root=off", "--server.address=127.0.0.1", "--spring.jackson.deserialization.fail-on-unknown-properties=true"));
      // `attributes`: DefaultErrorAttributes with message and binding errors, as before Spring Boot 2.3
      if (setting.equals("attributes")) settings.addAll(List.of("--server.error.include-message=always", "--server.error.include-binding-errors=always"));
      if (setting.equals("problems")) settings.add("--spring.mvc.problemdetails.enabled=true");
      var context = SpringApplication.run(Weather.class, settings.toArray(String[]::new));
      String port = context.getEnvironment().getProperty("local.server.port");
      List<String> paths = setting.equals("defaults") ? List.of("/plain", "/handled", "/cause") : List.of("/plain");
      for (var one : cases.properties()) for (String path : paths) {
        HttpRequest request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path))
            .header("content-type", "application/json").header("accept", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(one.getValue().toString())).build();
        HttpResponse<String> answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() < 400) continue;
        System.out.println(mapper.writeValueAsString(new TreeMap<>(Map.of("dialect", "spring", "case", one.getKey() + "/" + setting + path,
            "status", answer.statusCode(), "content_type", answer.headers().firstValue("content-type").orElse(""),
            "body", answer.body(), "how", "ran", "versions", Map.of("spring-boot", SpringBootVersion.getVersion())))));
      }
      context.close();
    }
  }
}

{{/*
The proxy's config file: what `config` says, and what the chart decides itself (ports, drain, reload). Secrets belong
into a Secret: what looks like one fails here instead of standing in a ConfigMap.
*/}}

{{/* The sections that a running proxy takes over (docs/operations.md, "Reload"); a change of any other rolls the
pods. Of `telemetry`, `log.level` is one too. */}}
{{- define "toolcall-proxy.live" -}}
routes tools schemas defaults documents guidance correction on_escalation upstreams drain reload second_judge record access pins callout prepare
{{- end }}

{{/* The whole config into a dictionary: (list CHART DICT) -> DICT.config */}}
{{- define "toolcall-proxy.config" -}}
{{- $chart := index . 0 -}}
{{- $into := index . 1 -}}
{{- $values := $chart.Values -}}
{{- $config := deepCopy $values.config -}}
{{- include "toolcall-proxy.ownKeys" $config -}}
{{- include "toolcall-proxy.noSecrets" $config -}}
{{- include "toolcall-proxy.off" $config -}}
{{- include "toolcall-proxy.exact" (list "config" $config false) -}}
{{- include "toolcall-proxy.flat" (list $config $values.schemas false) -}}
{{- $grace := dict -}}
{{- include "toolcall-proxy.grace" (list $chart $grace) -}}
{{- $listen := dict "host" $values.bindAddress "port" (int $values.ports.calls) -}}
{{- $admin := dict "listen" (printf "127.0.0.1:%d" (int $values.ports.admin)) -}}
{{- $_ := set $admin "probes" (dict "host" $values.bindAddress "port" (int $values.ports.probes)) -}}
{{- $_ := set $config "version" 1 -}}
{{- $_ := set $config "listen" (merge $listen ($config.listen | default dict)) -}}
{{- $_ := set $config "admin" (merge $admin ($config.admin | default dict)) -}}
{{- $_ := set $config "drain" (dict "serve" (printf "%ds" $grace.drain) "finish" (printf "%ds" $grace.call) "stay_ready" true) -}}
{{- if $values.reload.enabled -}}
  {{- $_ := set $config "reload" (dict "interval" $values.reload.interval) -}}
{{- else -}}
  {{- $_ := set $config "reload" "off" -}}
{{- end -}}
{{- if eq $values.shape "tool" -}}
  {{- $own := dict "tool" (dict "url" (printf "http://127.0.0.1:%d" (int $values.tool.port))) -}}
  {{- $_ := set $config "upstreams" (mergeOverwrite $own ($config.upstreams | default dict)) -}}
{{- end -}}
{{- $_ := set $into "config" $config -}}
{{- end }}

{{- define "toolcall-proxy.ownKeys" -}}
{{- $place := dict "version" "nothing: it is that of the chart" "drain" "drain.seconds and drain.longestCallSeconds" "reload" "reload" -}}
{{- range $key, $where := $place -}}
  {{- if hasKey $ $key -}}
    {{- fail (printf "toolcall-proxy: config.%s is written by the chart: set %s instead" $key $where) -}}
  {{- end -}}
{{- end -}}
{{- range $section, $keys := dict "listen" (list "host" "port" "unix" "mode") "admin" (list "listen" "probes") -}}
  {{- $written := get $ $section -}}
  {{- if and (hasKey $ $section) (not (kindIs "map" $written)) -}}
    {{- fail (printf "toolcall-proxy: config.%s: where it listens is decided by `ports` and `bindAddress`; what else it holds is a mapping" $section) -}}
  {{- end -}}
  {{- range $keys -}}
    {{- if hasKey ($written | default dict) . -}}
      {{- fail (printf "toolcall-proxy: config.%s.%s is written by the chart: set `ports` and `bindAddress` instead" $section .) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/*
Helm reads `off` in a values file as false (YAML 1.1). Switches take either; these keys know `off` among other words. What
is not of the proxy's making (schemas, settings of hooks) is left alone.
*/}}
{{- define "toolcall-proxy.off" -}}
{{- if kindIs "map" . -}}
  {{- range $key, $inner := . -}}
    {{- if and (kindIs "bool" $inner) (not $inner) (has $key (list "repair" "level" "auto_expand" "traces" "second_judge" "unknown_keywords" "leaked_markup" "mcp")) -}}
      {{- $_ := set $ $key "off" -}}
    {{- else if not (has $key (list "schema" "settings" "rules" "body")) -}}
      {{- include "toolcall-proxy.off" $inner -}}
    {{- end -}}
  {{- end -}}
{{- else if kindIs "slice" . -}}
  {{- range . }}{{ include "toolcall-proxy.off" . }}{{ end -}}
{{- end -}}
{{- end }}

{{/*
The keys of a ConfigMap have no folders, and a mount that gave them some would change the pod with each new file. So the
files of `schemas` lie beside the config, and `schemas/NAME` in it becomes NAME: (list CONFIG SCHEMAS WHETHER-IN-A-SCHEMA).
In a schema, only a `$ref` names a file; a `const` that looks like one is left alone.
*/}}
{{- define "toolcall-proxy.flat" -}}
{{- $inside := index . 0 -}}
{{- $schemas := index . 1 -}}
{{- $within := index . 2 -}}
{{- if kindIs "map" $inside -}}
  {{- range $key, $inner := $inside -}}
    {{- if kindIs "string" $inner -}}
      {{- $name := regexReplaceAll "#.*$" (trimPrefix "schemas/" $inner) "" -}}
      {{- $names := or (not $within) (eq $key "$ref") -}}
      {{- if and $names (hasPrefix "schemas/" $inner) (hasKey $schemas $name) -}}
        {{- $_ := set $inside $key (trimPrefix "schemas/" $inner) -}}
      {{- end -}}
    {{- else if not (has $key (list "settings" "rules" "body")) -}}
      {{- $described := and (has $key (list "schema" "response_schema" "overlay")) (not (hasKey (kindIs "map" $inner | ternary $inner dict) "openapi")) -}}
      {{- include "toolcall-proxy.flat" (list $inner $schemas (or $within $described)) -}}
    {{- end -}}
  {{- end -}}
{{- else if kindIs "slice" $inside -}}
  {{- range $inside }}{{ include "toolcall-proxy.flat" (list . $schemas $within) }}{{ end -}}
{{- end -}}
{{- end }}

{{/*
A schema written inside `config` must be one that Helm cannot have misread: (list PLACE VALUE WHETHER-IN-A-SCHEMA). YAML 1.1
takes the keys `n`, `y`, `on` for booleans, an enum's `yes` too, and numbers lose digits above 2^53.
*/}}
{{- define "toolcall-proxy.exact" -}}
{{- $place := index . 0 -}}
{{- $value := index . 1 -}}
{{- $inside := index . 2 -}}
{{- $doubt := "" -}}
{{- if kindIs "map" $value -}}
  {{- range $key, $inner := $value -}}
    {{- if and $inside (has $key (list "true" "false")) }}{{ $doubt = printf "the key %q" $key }}{{ end -}}
    {{- if and $inside (eq $key "const") (kindIs "bool" $inner) }}{{ $doubt = "a truth value in const" }}{{ end -}}
    {{- if and $inside (eq $key "enum") (kindIs "slice" $inner) -}}
      {{- range $inner }}{{ if kindIs "bool" . }}{{ $doubt = "a truth value in enum" }}{{ end }}{{ end -}}
    {{- end -}}
    {{- $deeper := or $inside (and (eq $key "schema") (not (kindIs "string" $inner))) -}}
    {{- include "toolcall-proxy.exact" (list (printf "%s.%s" $place $key) $inner $deeper) -}}
  {{- end -}}
{{- else if kindIs "slice" $value -}}
  {{- range $index, $inner := $value -}}
    {{- include "toolcall-proxy.exact" (list (printf "%s.%d" $place $index) $inner $inside) -}}
  {{- end -}}
{{- else if and $inside (or (kindIs "float64" $value) (kindIs "int64" $value)) -}}
  {{- if or (ge (float64 $value) 9007199254740992.0) (le (float64 $value) -9007199254740992.0) }}{{ $doubt = "a number beyond 2^53" }}{{ end -}}
{{- end -}}
{{- if $doubt -}}
  {{- fail (printf "toolcall-proxy: %s holds %s, and Helm may have read it differently from how it is written (`yes`, `n` and `on` are truth values to it, large numbers are rounded): put the schema into `schemas`, as text" $place $doubt) -}}
{{- end -}}
{{- end }}

{{/* What is known to be a secret must be a reference: ${NAME} or ${file:/path}. */}}
{{- define "toolcall-proxy.noSecrets" -}}
{{- include "toolcall-proxy.noSecretsIn" (list "config" .) -}}
{{- with regexFind "://[^/?#]*@" ((.state | default dict).url | default "") -}}
  {{- $password := regexFind ":[^:/@]*@" (trimPrefix "://" .) -}}
  {{- include "toolcall-proxy.noSecretsIn" (list "config.state" (dict "url" "" "password" $password)) -}}
{{- end -}}
{{- end }}

{{/* The same for everything below a place: (list PLACE VALUE). By the name of the key. */}}
{{- define "toolcall-proxy.noSecretsIn" -}}
{{- $place := index . 0 -}}
{{- $value := index . 1 -}}
{{- if kindIs "map" $value -}}
  {{- range $key, $inner := $value -}}
    {{- $secret := regexMatch "(?i)(^|[-_])(authorization|cookie|token|secret|password|api[-_]?key)$" $key -}}
    {{- if and $secret (kindIs "string" $inner) $inner (not (regexMatch "[$][{]" $inner)) -}}
      {{- fail (printf "toolcall-proxy: %s.%s is a secret, and the config becomes a ConfigMap: write ${file:/run/secrets/toolcall-proxy/KEY} and name the Secret in existingSecret, or ${NAME} and set it in extraEnv" $place $key) -}}
    {{- end -}}
    {{- include "toolcall-proxy.noSecretsIn" (list (printf "%s.%s" $place $key) $inner) -}}
  {{- end -}}
{{- else if kindIs "slice" $value -}}
  {{- range $index, $inner := $value -}}
    {{- include "toolcall-proxy.noSecretsIn" (list (printf "%s.%d" $place $index) $inner) -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{/* The files of the ConfigMap, as YAML of name -> text. */}}
{{- define "toolcall-proxy.files" -}}
{{- $made := dict -}}
{{- include "toolcall-proxy.config" (list . $made) -}}
config.yaml: |
  {{- toYaml $made.config | nindent 2 }}
{{- range $name, $text := .Values.schemas }}
{{ $name | quote }}: {{ $text | toJson }}
{{- end }}
{{- end }}

{{/* Annotations of a pod with the proxy: its checksum changes when the pod has to be rolled, and only then. */}}
{{- define "toolcall-proxy.podAnnotations" -}}
{{- $found := dict -}}
{{- include "toolcall-proxy.find" (list . $found) -}}
{{- $values := $found.chart.Values -}}
{{- if not $values.existingConfigMap -}}
{{- if $values.reload.enabled -}}
  {{- $made := dict -}}
  {{- include "toolcall-proxy.config" (list $found.chart $made) -}}
  {{- range splitList " " (include "toolcall-proxy.live" .) }}{{ $_ := unset $made.config . }}{{ end -}}
  {{- with $made.config.telemetry -}}
    {{- with .log }}{{ $_ := unset . "level" }}{{ end -}}
    {{- if not .log }}{{ $_ := unset . "log" }}{{ end -}}
    {{- if not . }}{{ $_ := unset $made.config "telemetry" }}{{ end -}}
  {{- end -}}
checksum/static: {{ toJson $made.config | sha256sum }}
{{- else -}}
checksum/config: {{ include "toolcall-proxy.files" $found.chart | sha256sum }}
{{- end }}
{{- end }}
{{- if $values.metrics.annotations }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ $values.ports.probes | toString | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- end }}

{{/* Labels of a pod with the proxy, by which monitors and policies find it. */}}
{{- define "toolcall-proxy.podLabels" -}}
{{- $found := dict -}}
{{- include "toolcall-proxy.find" (list . $found) -}}
{{- include "toolcall-proxy.mark" $found.chart -}}
{{- end }}

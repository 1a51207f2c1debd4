{{/* The tool's own container, in the shape `tool`. Its port is named in no Service: nobody gets past the proxy. */}}
{{- define "toolcall-proxy.tool" -}}
{{- $tool := .Values.tool -}}
{{- range $name, $port := .Values.ports -}}
  {{- if eq (int $port) (int $tool.port) -}}
    {{- fail (printf "toolcall-proxy: tool.port and ports.%s are both %d, and the containers of a pod share its ports: change ports.%s" $name (int $port) $name) -}}
  {{- end -}}
{{- end -}}
{{- if $tool.loopback -}}
  {{- range $probe := list "startupProbe" "readinessProbe" "livenessProbe" -}}
    {{- range $how := list "httpGet" "tcpSocket" "grpc" -}}
      {{- $port := dig $how "port" "" (get $tool $probe | default dict) | toString -}}
      {{- if eq $port (toString $tool.port) -}}
        {{- fail (printf "toolcall-proxy: tool.%s asks port %s, which is on the pod's loopback (tool.loopback), and kubelet asks from outside of the pod: leave readinessProbe out (the proxy asks the tool), set config.upstreams.tool.health to its path, or use exec" $probe $port) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
- name: {{ $tool.name }}
  image: {{ include "toolcall-proxy.image" (dict "image" $tool.image "tag" "" "where" "tool.image") | quote }}
  imagePullPolicy: {{ $tool.image.pullPolicy }}
  {{- range $field := list "command" "args" "env" "envFrom" "startupProbe" "livenessProbe" "resources" "securityContext" "volumeMounts" }}
  {{- with get $tool $field }}
  {{ $field }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- /* What the upstream is called in a config of somebody else is not known. */}}
  {{- with $tool.readinessProbe }}
  readinessProbe:
    {{- toYaml . | nindent 4 }}
  {{- else }}
  {{- if not (or (kindIs "invalid" $tool.readinessProbe) .Values.existingConfigMap) }}
  readinessProbe:
    {{- include "toolcall-proxy.toolReadinessProbe" (list . "tool") | nindent 4 }}
  {{- end }}
  {{- end }}
  lifecycle:
    {{- include "toolcall-proxy.toolLifecycle" . | nindent 4 }}
{{- end }}

{{/*
The readiness probe of a tool's container in any pod: (list CONTEXT UPSTREAM). Kubelet cannot reach a tool on loopback, so the
proxy beside it is asked whether the upstream takes connections, or whether its `health` path answers.
*/}}
{{- define "toolcall-proxy.toolReadinessProbe" -}}
{{- $found := dict -}}
{{- include "toolcall-proxy.find" (list (index . 0) $found) -}}
httpGet: { path: /readyz/upstream/{{ index . 1 }}, port: {{ $found.chart.Values.ports.probes }} }
{{- toYaml $found.chart.Values.probes.upstream | nindent 0 }}
{{- end }}

{{/* The tool's own container, in the shape `tool`. Its port is named in no Service: nobody gets past the proxy. */}}
{{- define "toolcall-proxy.tool" -}}
{{- $tool := .Values.tool -}}
{{- range $name, $port := .Values.ports -}}
  {{- if eq (int $port) (int $tool.port) -}}
    {{- fail (printf "toolcall-proxy: tool.port and ports.%s are both %d, and the containers of a pod share its ports: change ports.%s" $name (int $port) $name) -}}
  {{- end -}}
{{- end -}}
- name: {{ $tool.name }}
  image: {{ include "toolcall-proxy.image" (dict "image" $tool.image "tag" "" "where" "tool.image") | quote }}
  imagePullPolicy: {{ $tool.image.pullPolicy }}
  {{- range $field := list "command" "args" "env" "envFrom" "startupProbe" "readinessProbe" "livenessProbe" "resources" "securityContext" "volumeMounts" }}
  {{- with get $tool $field }}
  {{ $field }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  lifecycle:
    {{- include "toolcall-proxy.toolLifecycle" . | nindent 4 }}
{{- end }}
